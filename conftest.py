"""What every test of the checkout shares."""

pytest_plugins = ["pytester"]
