"""Paths that no command foresaw end in one short line."""


def test_a_path_that_the_system_refuses_is_one_short_line(run) -> None:
    refused = run("data", "check", "a" * 5000)
    assert refused.code == 2
    assert refused.error().startswith("E-FILE: ")
    assert len(refused.error()) < 500
