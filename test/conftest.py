"""Every instruction set that the compiled code can use on this machine."""

import pytest

from oxygen_ros import kernels


@pytest.fixture(params=kernels.generations() or [None])
def generation(request):
    assert request.param is not None, f"{kernels.LIBRARY} was not built: colcon puts it beside the modules"
    kernels.use(request.param)
    yield request.param
    kernels.use(kernels.generations()[0])
