"""Two processes export what one does, each its own images; a failure in one keeps what is written."""

from processes import folders_of, result

from lrptrain.segmentation import export_files

folders = folders_of("seeds_ddp_script.py")


def test_two_processes_write_what_one_writes(folders):
    one, first, second = result(folders[0], "whole"), result(folders[1], "whole"), result(folders[1], "whole", 1)
    assert one["scores"] == first["scores"] == second["scores"]
    assert sorted(one["written"]) == sorted(first["written"] + second["written"])  # 23 images: one is repeated
    assert min(len(first["written"]), len(second["written"])) > 3
    alone, both = folders[0] / "whole", folders[1] / "whole"
    assert export_files.read_index(alone) == export_files.read_index(both)
    for path in sorted(alone.rglob("*.*")):
        if path.suffix in (".png", ".txt", ".json", ".jsonl", ".jpg"):
            assert path.read_bytes() == (both / path.relative_to(alone)).read_bytes(), path
    assert not one["told"] + first["told"] + second["told"]


def test_an_export_of_which_a_process_failed_goes_on(folders):
    whole, cut = (export_files.finished_names(folders[1] / name) for name in ("whole", "cut"))
    first, second = (result(folders[1], "cut", rank) for rank in (0, 1))
    assert whole == cut
    done = len(first["written"]) + len(second["written"])
    assert 0 < done < len(whole)  # only what was missing
    assert not first["told"] + second["told"]


def test_beside_a_monitor_all_processes_write_into_its_folder(folders):
    for folder, ranks in zip(folders, (1, 2), strict=True):
        export = folder / "relevance" / "monitored" / "segmentation"
        assert len(export_files.finished_names(export)) == 23
        results = [result(folder, "monitored", rank) for rank in range(ranks)]
        assert all(each["scores"] == results[0]["scores"] and not each["told"] for each in results)
