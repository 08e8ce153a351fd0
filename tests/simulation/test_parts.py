"""The simulator's own parts: battery, clock, network, memory check, report."""

import random

import pytest

from edgefl.errors import ConfigError, EnvironmentProblem, LocalProtocolError
from firmware_sim.battery import Battery, PowerProfile
from firmware_sim.clock import VirtualClock
from firmware_sim.entropy import InsecureSeededEntropy
from firmware_sim.memory import available_bytes, estimate_bytes, require_memory
from firmware_sim.network import LinkQuality, VirtualNetwork
from firmware_sim.report import format_table

_PROFILE = PowerProfile(
    capacity_j=100.0,
    idle_w=1.0,
    training_w=4.0,
    joule_per_byte=0.5,
    charging_w=0.5,
    restart_j=10.0,
)


def _battery(charge_j: float) -> Battery:
    return Battery(_PROFILE, charge_j=charge_j, now_s=0.0)


class TestBattery:
    def test_idling_draws_what_the_panel_does_not_give(self) -> None:
        assert _battery(50.0).charge_j(10.0) == pytest.approx(50.0 - 10 * (1.0 - 0.5))

    def test_training_is_drawn_on_top_and_only_while_it_lasts(self) -> None:
        battery = _battery(50.0)
        battery.set_load(4.0, 10.0)
        battery.set_load(0.0, 14.0)
        assert battery.charge_j(20.0) == pytest.approx(50.0 - 20 * 0.5 - 4 * 4.0)

    def test_energy_taken_at_once_is_gone(self) -> None:
        battery = _battery(50.0)
        assert battery.take(20.0, 0.0)
        assert battery.charge_j(0.0) == pytest.approx(30.0)
        assert not battery.take(31.0, 0.0)
        assert battery.charge_j(0.0) == 0.0

    def test_reading_it_often_changes_nothing(self) -> None:
        often, once = _battery(50.0), _battery(50.0)
        for tenth in range(1, 101):
            often.charge_j(tenth / 10)
        assert often.charge_j(10.0) == pytest.approx(once.charge_j(10.0))

    def test_the_forecast_of_its_end_is_when_it_ends(self) -> None:
        battery = _battery(9.0)
        battery.set_load(4.0, 0.0)
        empty_s = battery.empties_at_s(0.0)
        assert empty_s == pytest.approx(2.0)
        assert battery.charge_j(empty_s) == pytest.approx(0.0)

    def test_a_board_that_is_off_charges_and_boots_at_its_threshold(self) -> None:
        battery = _battery(0.0)
        battery.switch(on=False, now_s=0.0)
        assert battery.empties_at_s(0.0) is None
        assert battery.restarts_at_s(0.0) == pytest.approx(20.0)
        assert battery.charge_j(20.0) == pytest.approx(_PROFILE.restart_j)

    def test_without_a_charger_it_never_boots_again(self) -> None:
        battery = Battery(PowerProfile(charging_w=0.0), charge_j=0.0, now_s=0.0)
        battery.switch(on=False, now_s=0.0)
        assert battery.restarts_at_s(0.0) is None

    def test_it_never_holds_more_than_its_capacity(self) -> None:
        battery = _battery(99.0)
        battery.switch(on=False, now_s=0.0)
        assert battery.charge_j(1000.0) == _PROFILE.capacity_j


class TestClock:
    def test_callbacks_run_in_order_of_time_then_of_making(self) -> None:
        clock, seen = VirtualClock(), []
        clock.call_at(2.0, lambda: seen.append("late"))
        clock.call_at(1.0, lambda: seen.append("first"))
        clock.call_at(1.0, lambda: seen.append("second"))
        while clock.run_next():
            pass
        assert seen == ["first", "second", "late"]
        assert clock.now_s == 2.0

    def test_a_loop_at_one_time_is_named(self) -> None:
        clock = VirtualClock()

        def again() -> None:
            clock.call_after(0.0, again)

        again()
        with pytest.raises(LocalProtocolError, match="E-SIM-STUCK"):
            self._run_all(clock)

    @staticmethod
    def _run_all(clock: VirtualClock) -> None:
        while clock.run_next():
            pass


class TestNetwork:
    @staticmethod
    def _network(loss: float = 0.0) -> tuple[VirtualClock, VirtualNetwork]:
        clock = VirtualClock()
        return clock, VirtualNetwork(clock, random.Random(1), LinkQuality(loss=loss))

    @staticmethod
    def _listen(network: VirtualNetwork, name: str, *filters: str) -> list[tuple[str, bytes]]:
        heard: list[tuple[str, bytes]] = []
        network.connect(
            name,
            filters=filters,
            deliver=lambda topic, payload: heard.append((topic, payload)),
            will=(f"status/{name}", b"gone"),
        )
        return heard

    @staticmethod
    def _run(clock: VirtualClock) -> None:
        while clock.run_next():
            pass

    def test_whole_topics_and_wildcards_select_and_nobody_hears_twice(self) -> None:
        clock, network = self._network()
        exact = self._listen(network, "exact", "a/b")
        wild = self._listen(network, "wild", "a/+", "a/b")
        network.publish("exact", "a/b", b"1")
        network.publish("exact", "a/c", b"2")
        self._run(clock)
        assert exact == [("a/b", b"1")]
        assert sorted(wild) == [("a/b", b"1"), ("a/c", b"2")]

    def test_retained_messages_reach_late_comers(self) -> None:
        clock, network = self._network()
        self._listen(network, "early", "x")
        network.publish("early", "a/b", b"kept", retain=True)
        network.publish("early", "a/c", b"not kept")
        assert (exact := self._listen(network, "late", "a/b", "a/c")) == []
        wild = self._listen(network, "later", "a/#")
        self._run(clock)
        assert exact == [("a/b", b"kept")]
        assert wild == [("a/b", b"kept")]

    def test_who_vanishes_leaves_its_will_and_hears_nothing_more(self) -> None:
        clock, network = self._network()
        gone = self._listen(network, "gone", "a/b")
        left = self._listen(network, "left", "status/+")
        network.publish("left", "a/b", b"on its way")
        network.vanish("gone")
        network.publish("gone", "status/gone", b"from the dead")
        self._run(clock)
        assert gone == []
        assert left == [("status/gone", b"gone")]

    def test_a_new_life_hears_nothing_meant_for_the_old(self) -> None:
        clock, network = self._network()
        self._listen(network, "board", "a/b")
        self._listen(network, "other", "x")
        network.publish("other", "a/b", b"to the old life")
        network.vanish("board")
        second = self._listen(network, "board", "a/b")
        self._run(clock)
        assert second == []

    def test_lost_transmissions_are_repeated_and_counted(self) -> None:
        clock, network = self._network(loss=0.25)
        heard = self._listen(network, "board", "a/b")
        for number in range(400):
            network.publish("board", "a/b", str(number).encode())
        self._run(clock)
        assert sorted(int(payload) for _, payload in heard) == list(range(400))
        # 400 * 0.25 / 0.75 = 133 expected, deviation 13.3; the seed fixes the count.
        assert 80 <= network.transmissions_lost <= 187
        assert clock.now_s > LinkQuality().resend_s

    @pytest.mark.parametrize("loss", [-0.1, 1.0, float("nan")])
    def test_an_impossible_loss_is_refused(self, loss: float) -> None:
        with pytest.raises(ConfigError, match="E-SIM-LOSS"):
            LinkQuality(loss=loss)


def test_each_name_draws_secrets_of_its_own() -> None:
    first = InsecureSeededEntropy(1, "board-1")
    drawn = {first.fresh_seed().export_bytes() for _ in range(3)}
    again = InsecureSeededEntropy(1, "board-1").fresh_seed().export_bytes()
    others = {
        InsecureSeededEntropy(1, "board-2").fresh_seed().export_bytes(),
        InsecureSeededEntropy(2, "board-1").fresh_seed().export_bytes(),
    }
    assert len(drawn) == 3
    assert again in drawn
    assert not drawn & others


class TestMemory:
    def test_a_fleet_that_does_not_fit_is_refused_with_one_that_does(self) -> None:
        with pytest.raises(EnvironmentProblem) as caught:
            require_memory(10_000, available=2 << 30)
        assert caught.value.code == "E-SIM-MEMORY"
        fits = int(caught.value.advice.split()[3])
        require_memory(fits, available=2 << 30)
        with pytest.raises(EnvironmentProblem):
            require_memory(fits + 1, available=2 << 30)

    def test_the_default_fleet_fits_into_a_small_machine(self) -> None:
        require_memory(200, available=512 << 20)

    def test_the_estimate_grows_with_the_fleet(self) -> None:
        assert estimate_bytes(10) < estimate_bytes(100) < estimate_bytes(1000)
        assert available_bytes() > 0


@pytest.mark.parametrize("broken", [{}, {"format": 2}, {"format": 1}, {"format": 1, "devices": 3}])
def test_what_is_no_report_is_refused(broken: dict[str, object]) -> None:
    with pytest.raises(ConfigError, match="E-SIM-REPORT"):
        format_table(broken)  # type: ignore[arg-type]
