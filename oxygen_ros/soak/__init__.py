"""The node under a fault injector: what it promises is asked of it for as long as one likes."""
