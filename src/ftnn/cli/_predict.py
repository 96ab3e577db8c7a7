"""`ftnn predict`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from ftnn.cli._app import Json, app
from ftnn.cli._screen import say, show_json
from ftnn.errors import ModelFileError


@app.command()
def predict(
    model: Annotated[
        Path, typer.Argument(metavar="MODEL", help="What `ftnn train --out` kept: the folder or the file.")
    ],
    data: Annotated[
        str, typer.Argument(metavar="DATA", help="A table, a folder of IDX files, or mnist: its test images.")
    ],
    proba: Annotated[bool, typer.Option(help="The probability of each class, too.")] = False,
    as_json: Json = False,
) -> None:
    """Answer with a model that `ftnn train --out` kept: a line for each row of the data.

    An error says so if the model's outputs are not finite for some rows: then there is no answer.
    """
    import numpy as np
    import torch

    from ftnn.data import Preparation
    from ftnn.data._by_name import model_inputs
    from ftnn.nn import Network, load, notes_of
    from ftnn.training._outcome import classes_of, require_finite

    path = model / "model.safetensors" if model.is_dir() else model
    net, preparation = load(path), Preparation.of(notes_of(path), path)
    if not isinstance(net, Network):
        raise ModelFileError(f"{path} holds a {type(net).__name__}, not a Network")
    classes = preparation.classes
    if classes is not None and len(classes) != net.out_features:
        raise ModelFileError(
            f"{path} notes {len(classes)} classes, but its network has {net.out_features} outputs"
        )
    x, labels, note = model_inputs(data, preparation, net.in_features, with_labels=True)
    with torch.no_grad():
        outputs = require_finite(net(torch.as_tensor(x, dtype=net.output.weight.dtype)), f"the model {path}")
    answers: list[Any]
    accuracy = shares = None
    if classes is None:
        answers = outputs[:, 0].tolist()
    else:
        answers = [classes[int(number)] for number in classes_of(outputs)]
        if labels is not None:
            accuracy = 100 * float(np.mean(np.array(answers) == labels))
        if proba:
            shares = torch.softmax(outputs.double(), 1).tolist()
    if as_json:
        document = {"predictions": answers, "classes": classes, "accuracy": accuracy}
        show_json(document if shares is None else {**document, "probabilities": shares})
    else:
        for number, answer in enumerate(answers):
            row = "" if shares is None else "," + ",".join(f"{share:.6g}" for share in shares[number])
            say(f"{answer}{row}")
    if note is not None:
        say(note, beside=True)
    if accuracy is not None:
        say(f"accuracy {accuracy:.2f} %", beside=True)
