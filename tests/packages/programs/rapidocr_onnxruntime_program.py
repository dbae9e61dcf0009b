"""rapidocr-onnxruntime: reads a page."""

from material import PAGE, page, report
from rapidocr_onnxruntime import RapidOCR

engine = RapidOCR()
image = page()


def answer():
    lines, _ = engine(image)
    texts = [text for _, text, _ in lines]
    return {
        "read": texts,
        "is right": [t.replace(" ", "") for t in texts] == [p.replace(" ", "") for p in PAGE],
        "scores": [float(score) for *_, score in lines],
        "boxes": [box for box, *_ in lines],
    }


report("rapidocr-onnxruntime", answer)
