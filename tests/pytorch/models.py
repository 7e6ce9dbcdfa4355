"""Small models of the kinds that people run: built with random weights, the same every time."""
import torch
from torch import nn


class UNet(nn.Module):
    """Two steps down, two up, with skips: activations that live long beside ones that do not."""

    def __init__(self, width=16):
        super().__init__()

        def block(inputs, outputs):
            return nn.Sequential(nn.Conv2d(inputs, outputs, 3, padding=1), nn.ReLU(),
                                 nn.Conv2d(outputs, outputs, 3, padding=1), nn.ReLU())

        self.down1, self.down2, self.bottom = block(3, width), block(width, 2 * width), block(2 * width, 4 * width)
        self.up2, self.up1 = block(6 * width, 2 * width), block(3 * width, width)
        self.last = nn.Conv2d(width, 2, 1)

    def forward(self, x):
        first = self.down1(x)
        second = self.down2(nn.functional.max_pool2d(first, 2))
        x = self.bottom(nn.functional.max_pool2d(second, 2))
        x = self.up2(torch.cat([nn.functional.interpolate(x, scale_factor=2.0), second], 1))
        x = self.up1(torch.cat([nn.functional.interpolate(x, scale_factor=2.0), first], 1))
        return self.last(x)


def inference(model, *inputs):
    """A run of a model without gradients: a function that returns its output."""
    model.eval()

    def run():
        with torch.no_grad():
            output = model(*inputs)
            return output[0] if isinstance(output, tuple) else output
    return run


def training_step(model, x, target):
    """One step of gradients: returns the gradients in one tensor, and leaves the weights alone."""
    def run():
        model.zero_grad(set_to_none=True)
        nn.functional.cross_entropy(model(x), target).backward()
        gradients = torch.cat([p.grad.flatten() for p in model.parameters()])
        model.zero_grad(set_to_none=True)
        return gradients
    return run


def all_runs():
    """{name: run}; the weights and inputs are made anew, the same every time."""
    import torchvision
    torch.manual_seed(1)
    layer = nn.TransformerEncoderLayer(64, 4, 128, batch_first=True)
    lstm = nn.LSTM(32, 64, 2, batch_first=True)
    mlp = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 10))
    return {
        "mobilenet_v2": inference(torchvision.models.mobilenet_v2(), torch.rand(1, 3, 160, 160)),
        "unet": inference(UNet(), torch.rand(1, 3, 64, 64)),
        "transformer": inference(nn.TransformerEncoder(layer, 3), torch.rand(2, 24, 64)),
        "lstm": inference(lstm, torch.rand(2, 20, 32)),
        "training_step": training_step(mlp, torch.rand(16, 64), torch.arange(16) % 10),
    }
