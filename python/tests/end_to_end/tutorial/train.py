"""The tutorial's training: ResNet-18, SGD with momentum, and the older tool's calls around the loop. `train.py SIDE`, of which `npu` is a device
whose convolution of one layer is 1 % too large."""

import os
import sys

SIDE = sys.argv[1]
os.environ["MSPROBE_PATH"] = os.path.abspath(f"msprobe_{SIDE}.json")

from probe import ApiProfiler
from probe.config_check import ConfigChecker

ConfigChecker.apply_patches(fmk="pytorch")

import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

#: Convolutions of a forward pass, and the one that the device computes wrongly: that of layer2.0.downsample.
CONVOLUTIONS, WRONG = 20, 7


class Device(TorchDispatchMode):
    """Makes the result of one convolution of each forward pass 1 % too large."""

    calls = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        if func._schema.name == "aten::convolution":
            self.calls += 1
            if SIDE == "npu" and (self.calls - 1) % CONVOLUTIONS == WRONG:
                with torch._C.DisableTorchFunction():
                    result = result * 1.01
        return result


class Block(nn.Module):
    """Two convolutions and a way around them."""

    def __init__(self, inside, outside, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(inside, outside, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(outside)
        self.relu = nn.ReLU(inplace=True)
        self.conv2 = nn.Conv2d(outside, outside, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(outside)
        self.downsample = None
        if stride != 1 or inside != outside:
            self.downsample = nn.Sequential(nn.Conv2d(inside, outside, 1, stride, bias=False), nn.BatchNorm2d(outside))

    def forward(self, x):
        y = self.bn2(self.conv2(self.relu(self.bn1(self.conv1(x)))))
        return self.relu(y + (x if self.downsample is None else self.downsample(x)))


class ResNet(nn.Module):
    """ResNet-18, a quarter as wide."""

    def __init__(self, width=16):
        super().__init__()
        self.conv1 = nn.Conv2d(3, width, 7, 2, 3, bias=False)
        self.bn1, self.relu, self.maxpool = nn.BatchNorm2d(width), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, 1)
        widths = [width, width, 2 * width, 4 * width, 8 * width]
        for layer in range(1, 5):
            blocks = (Block(widths[layer - 1], widths[layer], 1 if layer == 1 else 2), Block(widths[layer], widths[layer], 1))
            setattr(self, f"layer{layer}", nn.Sequential(*blocks))
        self.fc = nn.Linear(8 * width, 10)

    def forward(self, x):
        x = self.maxpool(self.relu(self.bn1(self.conv1(x))))
        return self.fc(self.layer4(self.layer3(self.layer2(self.layer1(x)))).mean((2, 3)))


torch.manual_seed(0)
torch.set_num_threads(1)
my_model = ResNet()
ConfigChecker(my_model, output_zip_path=f"{SIDE}.zip", fmk="pytorch")
optimizer = torch.optim.SGD(my_model.parameters(), lr=1e-4, momentum=0.9)
loader = [(torch.randn(16, 3, 32, 32), torch.randint(0, 10, (16,))) for _ in range(22)]

profiler = ApiProfiler()
profiler.start()
with Device():
    for images, labels in loader:
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(my_model(images), labels)
        loss.backward()
        optimizer.step()
profiler.stop()
profiler.save()
print(loss.item())
