"""rapidocr: reads a page."""

from material import PAGE, page, report
from rapidocr import RapidOCR

engine = RapidOCR(params={"Global.log_level": "critical"})
image = page()


def answer():
    found = engine(image)
    texts = list(found.txts)
    return {
        "read": texts,
        "is right": [t.replace(" ", "") for t in texts] == [p.replace(" ", "") for p in PAGE],
        "scores": list(found.scores),
        "boxes": found.boxes,
    }


report("rapidocr", answer)
