"""Pictures for the commands that take one."""


def write_picture(path, pixels, **options):
    """A PNG of these pixels."""
    from PIL import Image

    Image.fromarray(pixels).save(path, **options)
    return path
