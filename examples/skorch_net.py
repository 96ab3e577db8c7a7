"""A `Transfer` layer in a skorch net, as a scikit-learn estimator in a pipeline with cross-validation."""

import json

import numpy as np
import torch
from sklearn.datasets import load_digits
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler
from skorch import NeuralNetClassifier
from torch import Tensor, nn

import ftnn


class Digits(nn.Module):
    """(batch, 64) → (batch, 10)."""

    def __init__(self, function: str = "F12", width: int = 32):
        super().__init__()
        self.hidden = ftnn.nn.Transfer(64, width, function)
        self.output = nn.Linear(width, 10)

    def forward(self, x: Tensor) -> Tensor:
        return self.output(torch.tanh(self.hidden(x)))


torch.manual_seed(0)
x, y = load_digits(return_X_y=True)
net = NeuralNetClassifier(
    Digits,
    module__function="F16",
    criterion=nn.CrossEntropyLoss,  # pyright: ignore[reportArgumentType]
    optimizer=torch.optim.Adam,
    lr=0.02,
    max_epochs=15,
    batch_size=64,
    verbose=0,
)
model = make_pipeline(MinMaxScaler(), net)
print(json.dumps({"accuracy": float(cross_val_score(model, x.astype(np.float32), y, cv=3).mean())}))
