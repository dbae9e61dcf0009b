"""ddddocr: reads a captcha, and finds where its letters are."""

import io

from ddddocr import DdddOcr
from material import WORD, captcha, report

readers = {"common": DdddOcr(show_ad=False), "old": DdddOcr(show_ad=False, old=True)}
detector = DdddOcr(det=True, show_ad=False)
buffer = io.BytesIO()
captcha().save(buffer, "PNG")
IMAGE = buffer.getvalue()


def answer():
    read = {name: reader.classification(IMAGE) for name, reader in readers.items()}
    return {"read": read, "is right": read["common"] == WORD, "boxes": detector.detection(IMAGE)}


report("ddddocr", answer)
