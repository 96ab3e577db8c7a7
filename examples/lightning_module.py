"""A `Transfer` layer in a LightningModule: it is an ordinary `nn.Module`, so nothing special is needed."""

import json
import logging

import lightning
import torch
from lightning.pytorch.utilities.types import OptimizerLRScheduler
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset, random_split

import ftnn

logging.getLogger("lightning.pytorch").setLevel(logging.WARNING)


class Digits(lightning.LightningModule):
    """8×8 images of digits, (batch, 64) → (batch, 10)."""

    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(ftnn.nn.Transfer(64, 32, "F16"), nn.Tanh(), nn.Linear(32, 10))

    def training_step(self, batch: tuple[Tensor, Tensor], index: int) -> Tensor:
        x, y = batch
        return nn.functional.cross_entropy(self.net(x), y)

    def test_step(self, batch: tuple[Tensor, Tensor], index: int) -> None:
        x, y = batch
        self.log("accuracy", (self.net(x).argmax(1) == y).float().mean())

    def configure_optimizers(self) -> OptimizerLRScheduler:
        return torch.optim.Adam(self.parameters(), lr=0.02)


lightning.seed_everything(0, verbose=False)
x, y = load_digits(return_X_y=True)
data = TensorDataset(torch.tensor(x / 16, dtype=torch.float32), torch.tensor(y))
train, test = random_split(data, [0.7, 0.3])
trainer = lightning.Trainer(
    max_epochs=15,
    accelerator="cpu",
    logger=False,
    enable_checkpointing=False,
    enable_progress_bar=False,
    enable_model_summary=False,
)
module = Digits()
trainer.fit(module, DataLoader(train, batch_size=64, shuffle=True))
(result,) = trainer.test(module, DataLoader(test, batch_size=len(test)), verbose=False)
print(json.dumps({"accuracy": result["accuracy"]}))
