"""silero-vad: where somebody speaks."""

import torch
from material import RATE, report, speech
from silero_vad import VADIterator, get_speech_timestamps, load_silero_vad

audio = torch.from_numpy(speech())
models = {opset: load_silero_vad(onnx=True, opset_version=opset) for opset in (15, 16)}
sequence = load_silero_vad(sequence=True)


def answer():
    found = {}
    for opset, model in models.items():
        model.reset_states()
        found[f"opset {opset}"] = get_speech_timestamps(audio, model, sampling_rate=RATE)
        model.reset_states()
        found[f"probabilities {opset}"] = model.audio_forward(audio[None], RATE).numpy()
    stream = VADIterator(models[16])
    windows = audio[: len(audio) // 512 * 512].split(512)
    found["stream"] = [e for e in (stream(w) for w in windows) if e]
    found["sequence"] = sequence.audio_forward(audio.numpy())
    return found


report("silero-vad", answer)
