"""A small export of masks to show, as the project writes it."""

import torch

from lrptrain.segmentation import export_files

NAMES = ["cat", "<b>dog</b>", "ünït"]
ODD = "folder/<img src=x onerror=alert(1)>"


def export(folder, images=30, epochs=()):
    """Images of 40 x 60 pixels: every fifth is skipped, every other of the train split has a true mask."""
    for root in (folder, *(folder / f"epoch_{epoch}" for epoch in epochs)):
        export_files.begin_export(root, {"method": "raw_attention"}, NAMES)
        for number in range(images):
            split = "val" if number % 3 == 0 else "train"
            name = export_files.image_name(ODD if number == 1 else number, split)
            if number % 5 == 4:
                entry = export_files.Entry(name, split, (), (40, 60), "skipped", "no positive relevance")
                export_files.append_entry(root, entry)
            else:
                export_files.write_image_files(root, *exported(name, split, number))
    return folder


def exported(name, split, number):
    """A square of the image's class on a photograph, with an ignored border in the pseudo-mask."""
    own = number % 3
    mask = torch.zeros(40, 60, dtype=torch.uint8)
    mask[10:30, 10:30] = 1 + own
    ignoring = mask.clone()
    ignoring[10:30, 30:36] = 255
    photograph = torch.linspace(0, 1, 60).expand(3, 40, 60)
    pictures = {export_files.SEEDS: mask, export_files.REFINED: mask, export_files.MASKS: ignoring}
    pictures[export_files.JPEG_IMAGES] = photograph
    if number % 2 and split == "train":
        pictures[export_files.TRUTH] = mask
    return export_files.Entry(name, split, (own,), (40, 60)), pictures
