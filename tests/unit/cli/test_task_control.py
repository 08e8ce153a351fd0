"""`edgefl task pause|resume|cancel`: a word in the task's folder, and nowhere else."""

from pathlib import Path

import pytest

from broker.task_wishes import TaskWish, read_wish, write_wish
from edgefl.errors import ConfigError
from tests.command import Run


def test_the_word_lies_in_the_tasks_folder(run: Run, tmp_path: Path) -> None:
    folder = tmp_path / "tasks" / "wake"
    folder.mkdir(parents=True)
    assert read_wish(tmp_path, "wake") is TaskWish.RUN
    assert run("task", "pause", "wake", "--state", tmp_path).code == 0
    assert read_wish(tmp_path, "wake") is TaskWish.PAUSE
    assert run("task", "resume", "wake", "--state", tmp_path).code == 0
    assert read_wish(tmp_path, "wake") is TaskWish.RUN
    (folder / "wish").write_bytes(b"\xff" * 1000)
    assert read_wish(tmp_path, "wake") is TaskWish.RUN
    ended = run("task", "cancel", "wake", "--state", tmp_path)
    assert ended.out == "task wake: cancelled, when the gateway starts next\n"
    run("task", "resume", "wake", "--state", tmp_path).refuses("E-TASK-CANCELLED", 2)
    for name in ("none", "", "..", "../wake", "tasks/wake"):
        run("task", "pause", name, "--state", tmp_path).refuses("E-TASK-UNKNOWN", 2)
    with pytest.raises(ConfigError, match="E-TASK-UNKNOWN"):
        write_wish(tmp_path, "/etc", TaskWish.PAUSE)
