"""Small models of the kinds that people run: built with random weights, the same every time."""
import random
import warnings

import torch
import torch.ao.quantization as ao
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


def optimiser_step(model, x, target):
    """One step of AdamW, which changes the weights: returns the loss."""
    optimiser = torch.optim.AdamW(model.parameters(), lr=1e-4)

    def run():
        loss = nn.functional.cross_entropy(model(x), target)
        loss.backward()
        optimiser.step()
        optimiser.zero_grad(set_to_none=True)
        return loss.detach()
    return run


class Quantised(nn.Module):
    """Convolutions between two stubs; quantised() makes it one of whole numbers."""

    def __init__(self):
        super().__init__()
        self.enter, self.leave, self.add = ao.QuantStub(), ao.DeQuantStub(), nn.quantized.FloatFunctional()
        self.first, self.second = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.ReLU()), nn.Conv2d(8, 8, 3, padding=1)

    def forward(self, x):
        x = self.first(self.enter(x))
        return self.leave(self.add.add(nn.functional.max_pool2d(self.second(x), 2), nn.functional.max_pool2d(x, 2)))


def quantised(model, x):
    """The model statically quantised for QNNPACK."""
    torch.backends.quantized.engine = "qnnpack"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what PyTorch says of its observers
        model.eval().qconfig = ao.get_default_qconfig("qnnpack")
        model = ao.prepare(model)
        model(x)
        return ao.convert(model)


class Last(nn.Module):
    """A recurrent model's output at the last step, in one layer."""

    def __init__(self, inner, width, outputs):
        super().__init__()
        self.inner, self.layer = inner, nn.Linear(width, outputs)

    def forward(self, x):
        return self.layer(self.inner(x)[0][:, -1])


def drawn(seed):
    """A run of a model that nobody has named: kind, depth, width, batch and task are drawn."""
    rng = random.Random(seed)
    torch.manual_seed(seed)
    kind, depth, width, batch = rng.choice(("mlp", "convolutions", "attention", "recurrent")), rng.randint(1, 6), \
        32 * rng.randint(1, 12), rng.choice((1, 2, 5, 8, 16, 33))
    if kind == "mlp":
        layers = [each for _ in range(depth) for each in (nn.Linear(width, width), rng.choice((nn.ReLU, nn.GELU, nn.Tanh))())]
        model, x = nn.Sequential(*layers, nn.Linear(width, 10)), torch.rand(batch, width)
    elif kind == "convolutions":
        widths = [3, *(8 * rng.randint(1, 6) for _ in range(depth))]
        layers = [each for i in range(depth) for each in (nn.Conv2d(widths[i], widths[i + 1], 3, padding=1, stride=rng.choice((1, 1, 2))),
                                                          nn.BatchNorm2d(widths[i + 1]), nn.ReLU())]
        model = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(widths[-1], 10))
        x = torch.rand(min(batch, 8), 3, *[16 * rng.randint(2, 8)] * 2)
    elif kind == "attention":
        layer = nn.TransformerEncoderLayer(width, 4, rng.randint(1, 4) * width, dropout=0.0, batch_first=True)
        model = nn.Sequential(nn.TransformerEncoder(layer, min(depth, 4)), nn.Flatten(), nn.LazyLinear(10))
        x = torch.rand(batch, rng.randint(8, 48), width)
    else:
        inner = rng.choice((nn.LSTM, nn.GRU, nn.RNN))(width, width, min(depth, 3), batch_first=True)
        model, x = Last(inner, width, 10), torch.rand(batch, rng.randint(8, 48), width)
    model(x.repeat(2, *[1] * (x.dim() - 1)))  # lazy layers learn their shape
    if rng.random() < 0.5:
        return inference(model, x)
    return rng.choice((training_step, optimiser_step))(model, x, torch.arange(len(x)) % 10)


def all_runs():
    """{name: run}; the weights and inputs are made anew, the same every time."""
    import torchvision
    torch.manual_seed(1)
    layer = nn.TransformerEncoderLayer(64, 4, 128, batch_first=True)
    lstm = nn.LSTM(32, 64, 2, batch_first=True)
    mlp = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 10))
    image = torch.rand(2, 3, 24, 24)
    return {
        "mobilenet_v2": inference(torchvision.models.mobilenet_v2(), torch.rand(1, 3, 160, 160)),
        "unet": inference(UNet(), torch.rand(1, 3, 64, 64)),
        "transformer": inference(nn.TransformerEncoder(layer, 3), torch.rand(2, 24, 64)),
        "lstm": inference(lstm, torch.rand(2, 20, 32)),
        "quantised": inference(quantised(Quantised(), image), image),
        "training_step": training_step(mlp, torch.rand(16, 64), torch.arange(16) % 10),
    }
