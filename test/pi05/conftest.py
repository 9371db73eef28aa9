"""Every instruction set that the compiled code can use on this machine, on one thread and on two."""

import pytest
import torch

from oxygen_ros.pi05 import kernels


@pytest.fixture(params=kernels.generations() or [None])
def generation(request):
    assert request.param is not None, f"{kernels.LIBRARY} was not built: colcon puts it beside the modules"
    kernels.use(request.param)
    yield request.param
    kernels.use(kernels.generations()[0])


@pytest.fixture(params=[1, 2], ids=["one thread", "two threads"])
def threads(request):
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield request.param
    torch.set_num_threads(before)
