"""What the programs look at and listen to: made here, the same on every machine."""

from __future__ import annotations

import json
import sys
import time
import wave
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image, ImageDraw, ImageFont

RATE = 16000

PAGE = (
    "The quick brown fox jumps over the lazy dog.",
    "Invoice 2041: 17 boxes at 3.50 each",
    "Total due before the end of March",
)

WORD = "w7kd"


def page() -> np.ndarray:
    """Return a page of text, [height, width, RGB]."""
    image = Image.new("RGB", (900, 300), "white")
    draw = ImageDraw.Draw(image)
    for row, line in enumerate(PAGE):
        draw.text((40, 40 + 80 * row), line, "black", ImageFont.load_default(34))
    return np.asarray(image)


def captcha() -> Image.Image:
    """Return four letters, each turned, on noise and lines."""
    rng = np.random.default_rng(3)
    image = Image.fromarray(rng.integers(190, 256, (64, 160, 3), np.uint8))
    draw = ImageDraw.Draw(image)
    for place, letter in enumerate(WORD):
        tile = Image.new("RGBA", (48, 56))
        ink = (*rng.integers(0, 90, 3).tolist(), 255)
        ImageDraw.Draw(tile).text((8, 2), letter, ink, ImageFont.load_default(42))
        tile = tile.rotate(float(rng.uniform(-18, 18)), resample=Image.Resampling.BICUBIC)
        image.paste(tile, (4 + 38 * place, 4), tile)
    for _ in range(3):
        draw.line([*rng.integers(0, 160, 1), *rng.integers(0, 64, 1), *rng.integers(0, 160, 1),
                   *rng.integers(0, 64, 1)], (140, 140, 160), 1)  # fmt: skip
    return image


def speech() -> np.ndarray:
    """Return something like speech between silences: vowels of a falling voice, float32."""
    rng = np.random.default_rng(5)
    vowels = ((730, 1090, 2440), (270, 2290, 3010), (570, 840, 2410), (530, 1840, 2480))
    parts = [np.zeros(RATE // 2)]
    for number in range(12):
        t = np.arange(int(RATE * 0.18)) / RATE
        pitch = 130 - 20 * t / t[-1] + 3 * np.sin(2 * np.pi * 5 * t)
        phase = 2 * np.pi * np.cumsum(pitch) / RATE
        sound = sum(
            np.sin(k * phase)
            / k
            * sum(np.exp(-(((k * 125 - f) / 110) ** 2)) for f in vowels[number % 4])
            for k in range(1, 40)
        )
        parts += [sound * np.hanning(len(t)), rng.normal(0, 0.02, int(RATE * 0.05))]
    parts.append(np.zeros(RATE // 2))
    joined = np.concatenate(parts)
    joined = 0.6 * joined / np.abs(joined).max() + rng.normal(0, 1e-3, joined.shape)
    return joined.astype(np.float32)


def melody(path: Path, rate: int = 22050, turns: int = 1) -> list[int]:
    """Write notes with overtones as a .wav file, and return their MIDI numbers."""
    notes = [60, 64, 67, 72]
    t = np.arange(int(rate * 0.6)) / rate
    sounds = []
    for note in notes:
        f = 440 * 2 ** ((note - 69) / 12)
        tone = sum(np.sin(2 * np.pi * k * f * t) / k**2 for k in range(1, 6))
        sounds.append(tone * np.exp(-2.5 * t) * np.minimum(1, t * 200))
    samples = np.concatenate(sounds * turns)
    with wave.open(str(path), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(rate)
        file.writeframes((samples / np.abs(samples).max() * 30000).astype("<i2").tobytes())
    return notes


def report(package: str, answer: Callable[[], Any], repeats: int = 5) -> None:
    """Print what a function answers, and the least time that it takes, as JSON."""
    import onnxruntime

    found = answer()
    seconds = []
    for _ in range(repeats):
        start = time.perf_counter()
        answer()
        seconds.append(time.perf_counter() - start)
    facts = {
        "served_by": onnxruntime.get_build_info(),
        "version": version(package),
        "seconds": min(seconds),
        "answer": found,
    }
    json.dump(facts, sys.stdout, default=_plain)


def _plain(x: Any) -> Any:
    return x.tolist() if isinstance(x, (np.ndarray, np.generic)) else str(x)
