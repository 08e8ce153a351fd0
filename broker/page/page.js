// Asks the gateway for its status every two seconds while the page is looked at, and shows it.

import { bar, barChart, el, lineChart, stack } from "/charts.js";

const PAUSE_MS = 2000;
const SHOWN_ROUNDS = 20;
const DRAWN_ROUNDS = 60;
const PHASES = [
  ["CHECK_IN", "check-in"], ["SHARE_KEYS", "keys shared"], ["MASKED_INPUT", "update in the sum"],
  ["CERTIFICATE", "list certified"], ["UNMASKING", "helped unmask"],
];
const PHASE_WORDS = Object.fromEntries(PHASES);
const $ = (id) => document.getElementById(id);

const show = (id, ...children) => $(id).replaceChildren(...children.filter((child) => child !== null));
const faint = (...text) => el("p", { class: "faint" }, ...text);
const whole = (value) => value.toLocaleString("en");
const plural = (count, word) => `${whole(count)} ${word}${count === 1 ? "" : "s"}`;
const small = (value) => (value === null ? "no bound" : Number(value.toPrecision(3)).toString());
const reason = (name) => name.toLowerCase().replaceAll("_", " ");

function bytes(value) {
  const units = ["B", "kB", "MB", "GB", "TB"];
  let unit = 0;
  while (value >= 1000 && unit < units.length - 1) { value /= 1000; unit += 1; }
  return `${unit === 0 ? value : value.toFixed(value < 10 ? 2 : 1)} ${units[unit]}`;
}

function span(seconds) {
  if (seconds === null || seconds === undefined) return "–";
  if (seconds < 10) return seconds === 0 ? "0 s" : `${seconds.toFixed(2)} s`;
  if (seconds < 120) return `${seconds.toFixed(0)} s`;
  if (seconds < 7200) return `${(seconds / 60).toFixed(0)} min`;
  if (seconds < 172800) return `${(seconds / 3600).toFixed(1)} h`;
  return `${(seconds / 86400).toFixed(1)} days`;
}

function figures(pairs) {
  return el("dl", { class: "figures" }, ...pairs.map(([name, value]) => el("div", {}, el("dt", {}, name), el("dd", {}, value))));
}

function head(status) {
  $("fleet").textContent = status.fleet;
  document.title = `${status.fleet}: edgefl gateway`;
  $("version").textContent = status.edgefl;
  const age = status.at_s - status.started_at_s;
  const since = new Date(status.started_at_s * 1000).toLocaleString();
  $("state").textContent = `runs since ${since} (${span(age)})`;
  const isLinked = status.broker.is_linked;
  $("chip").textContent = isLinked ? "running" : "no broker";
  $("chip").className = `chip ${isLinked ? "good" : "bad"}`;
  const trust = $("trust");
  trust.hidden = !status.is_curious_only;
  trust.replaceChildren(
    el("strong", {}, status.trust),
    ": the enrolment key is on this gateway, so it could enrol devices that do not exist. ",
    "Against a malicious gateway the roster must be signed elsewhere (edgefl roster).",
  );
  $("problems").hidden = status.problems.length === 0;
  $("problems").querySelector("ul").replaceChildren(...status.problems.map((one) => el("li", {}, one.text)));
}

function now(status) {
  const open = status.open_round;
  if (open === null) {
    const wait = status.waiting;
    const text = wait === null ? "No task is waiting: hand one in with edgefl task submit." : `Waiting for ${wait.for}: ${wait.have}/${wait.need}`;
    show("now", el("p", { class: "big" }, wait === null ? "idle" : `${wait.have}/${wait.need}`), faint(text));
    return;
  }
  const at = PHASES.findIndex(([name]) => name === open.phase);
  const task = status.tasks.find((one) => one.task === open.task);
  const steps = PHASES.map(([name, words], index) =>
    el("li", { class: index < at ? "done" : "", "aria-current": name === open.phase ? "step" : null }, words));
  const text = `${open.arrived} of ${open.expected} devices, ${open.needed} needed`;
  show(
    "now",
    el("p", { class: "big" }, `Round ${open.round}`, el("small", {}, task ? ` of ${task.rounds}, task ${open.task}, attempt ${open.attempt}` : "")),
    el("ol", { class: "steps" }, ...steps),
    bar(open.arrived / Math.max(1, open.expected), text, open.arrived >= open.needed ? "good" : ""),
    faint(`${text}; ${span(open.since_s)} in this phase`),
  );
}

function devices(status) {
  const { known, online, asleep, offline, pending, rejected, revoked } = status.devices;
  const legend = [["good", "online", online], ["second", "asleep", asleep], ["", "offline", offline]];
  const states = [["waiting to be enrolled", pending], ["rejected", rejected], ["revoked", revoked]].filter(([, count]) => count);
  show(
    "devices",
    el("p", { class: "big" }, whole(online), el("small", {}, ` online of ${whole(known)}`)),
    stack([[online, "good"], [asleep, "second"]], known, `${online} online, ${asleep} asleep, ${offline} offline`),
    el("ul", { class: "legend" }, ...legend.map(([kind, word, count]) => el("li", {}, el("i", { class: kind }), `${word} ${whole(count)}`))),
    ...states.map(([word, count]) => el("p", {}, `${whole(count)} ${word}`)),
    faint(status.key_epoch_members === null ? "no key epoch is open" : `${plural(status.key_epoch_members, "device")} in the key epoch`),
  );
}

function privacy(status) {
  const rows = status.tasks.flatMap((task) => {
    if (!task.has_noise) {
      return [el("p", {}, el("strong", {}, task.task), ": without noise, so without a bound on epsilon")];
    }
    const [spent, budget] = [task.epsilon_server ?? 0, task.epsilon_budget];
    const text = `epsilon ${small(spent)} of ${small(budget)}`;
    const share = spent / budget;
    return [
      el("p", {}, el("strong", {}, task.task), ` ${text}`),
      bar(share, text, share > 0.9 ? "bad" : share > 0.7 ? "warn" : ""),
      faint(`against this gateway; release ${small(task.epsilon_release)}, a person with two devices ${small(task.epsilon_two_devices)}; delta ${task.delta.toExponential()}`),
    ];
  });
  show("privacy", ...(rows.length ? rows : [faint("no task yet")]));
}

function model(status) {
  const task = [...status.tasks].reverse().find((one) => one.metrics.length > 0) ?? null;
  if (task === null) {
    show("model", faint("no model has been measured yet: a task brings evaluation data with --evaluation"));
    return;
  }
  const isAccuracy = task.metrics.some((one) => one.accuracy !== null);
  const name = isAccuracy ? "accuracy" : "loss";
  const points = task.metrics.filter((one) => one[name] !== null).map((one) => [one.round, one[name]]);
  const format = (value) => value.toFixed(isAccuracy ? 2 : 3);
  if (points.length === 0) {
    show("model", faint("the model's loss is not a number"));
    return;
  }
  const newest = points[points.length - 1];
  show(
    "model",
    el("p", { class: "big" }, newest[1].toFixed(3), el("small", {}, ` ${name} after round ${newest[0]}, task ${task.task}`)),
    lineChart(points, { label: `${name} by round, newest ${format(newest[1])}`, format, floor: isAccuracy ? 0 : null, ceiling: isAccuracy ? 1 : null }),
  );
}

function bars(rows) {
  return el("dl", { class: "bars" }, ...rows.flatMap(([name, share, text, kind]) => [el("dt", {}, name), bar(share, `${name}: ${text}`, kind), el("dd", {}, text)]));
}

function funnel(summary) {
  if (summary.funnel.length === 0) {
    show("funnel", faint("no round has closed yet"));
    return;
  }
  const called = summary.funnel[0].expected;
  const rows = summary.funnel.map((row) => [
    PHASE_WORDS[row.phase], row.arrived / Math.max(1, called),
    `${whole(row.arrived)} (${((100 * row.arrived) / Math.max(1, called)).toFixed(0)} %)`, "",
  ]);
  show("funnel", bars([["called", 1, `${whole(called)} (100 %)`, ""], ...rows]));
}

function drops(summary) {
  if (summary.drops.length === 0) {
    show("drops", faint(summary.rounds === 0 ? "no round has closed yet" : "nobody dropped out"));
    return;
  }
  const most = Math.max(...summary.drops.map((row) => row.count));
  show("drops", bars(summary.drops.map((row) => [`${reason(row.phase)}: ${reason(row.reason).replaceAll("-", " ")}`, row.count / most, whole(row.count), "bad"])));
}

function times(status) {
  const { round_time_s: time, outcomes } = status.summary;
  const drawn = status.rounds.slice(-DRAWN_ROUNDS);
  const done = outcomes.COMMITTED ?? 0;
  const lost = outcomes.ABORTED ?? 0;
  show(
    "times",
    figures([["median", span(time.p50)], ["p90", span(time.p90)], ["p99", span(time.p99)], ["committed", whole(done)], ["aborted", whole(lost)]]),
    drawn.length === 0 ? faint("no round has closed yet") : barChart(
      drawn.map((row) => ({ parts: [[row.duration_s, row.outcome === "COMMITTED" ? "main" : "bad"]], title: `round ${row.round}, attempt ${row.attempt}: ${span(row.duration_s)}, ${reason(row.outcome)}` })),
      { label: `time of the last ${drawn.length} rounds`, format: span, first: "oldest", last: "newest" },
    ),
    el("ul", { class: "legend" }, el("li", {}, el("i", { class: "main" }), "committed"), el("li", {}, el("i", { class: "bad" }), "aborted")),
  );
}

function traffic(status) {
  const { up_bytes: up, down_bytes: down } = status.summary;
  const drawn = status.rounds.slice(-DRAWN_ROUNDS);
  show(
    "bytes",
    figures([["from devices", bytes(up)], ["to devices", bytes(down)]]),
    drawn.length === 0 ? faint("no round has closed yet") : barChart(
      drawn.map((row) => ({ parts: [[row.up_bytes, "main"], [row.down_bytes, "second"]], title: `round ${row.round}: ${bytes(row.up_bytes)} up, ${bytes(row.down_bytes)} down` })),
      { label: `bytes of the last ${drawn.length} rounds`, format: bytes, first: "oldest", last: "newest" },
    ),
    el("ul", { class: "legend" }, el("li", {}, el("i", { class: "main" }), "up"), el("li", {}, el("i", { class: "second" }), "down")),
  );
}

function gateway(status) {
  const counters = Object.entries(status.broker.counters).filter(([, count]) => count !== 0)
    .map(([name, count]) => [name.replaceAll("_", " "), name.includes("bytes") ? bytes(count) : whole(count)]);
  const refused = Object.values(status.refusals).reduce((sum, count) => sum + count, 0);
  show("gateway", figures([
    [status.broker.kind === "endpoint" ? "own endpoint" : "external broker", status.broker.addresses.join(", ") || "–"],
    ["disk free", bytes(status.disk.free_bytes)], ["state", bytes(status.disk.state_bytes)],
    ["messages refused", whole(refused)], ["roster", status.is_curious_only ? "signed here" : "signed by an operator"], ...counters,
  ]));
}

function rounds(status) {
  if (status.rounds.length === 0) {
    show("rounds", faint("no round has closed yet"));
    return;
  }
  const names = ["task", "round", "attempt", "closed", "took", "called", "in the sum", "dropped", "epsilon", "accuracy or loss"];
  const body = status.rounds.slice(-SHOWN_ROUNDS).reverse().map((row) => {
    const isDone = row.outcome === "COMMITTED";
    const metric = row.accuracy ?? row.loss;
    return el(
      "tr", {}, el("td", {}, row.task), el("td", {}, String(row.round)), el("td", {}, String(row.attempt)),
      el("td", {}, new Date(row.closed_at_s * 1000).toLocaleTimeString()), el("td", {}, span(row.duration_s)),
      el("td", {}, String(row.called)), el("td", {}, String(row.survivors)), el("td", {}, String(row.dropped)),
      el("td", {}, row.epsilon_server === null ? "–" : small(row.epsilon_server)), el("td", {}, metric === null ? "–" : metric.toFixed(3)),
      el("td", { class: `text outcome${isDone ? "" : " aborted"}` }, isDone ? "committed" : `${reason(row.reason)}${row.in_phase ? ` in ${reason(row.in_phase)}` : ""}`),
    );
  });
  const heading = [...names.map((name) => el("th", { scope: "col" }, name)), el("th", { scope: "col", class: "text" }, "outcome")];
  show("rounds", el("table", {}, el("thead", {}, el("tr", {}, ...heading)), el("tbody", {}, ...body)));
}

function render(status) {
  for (const note of document.querySelectorAll(".span")) note.textContent = `(last ${plural(status.summary.rounds, "round")})`;
  head(status); now(status); devices(status); privacy(status); model(status); funnel(status.summary);
  drops(status.summary); times(status); traffic(status); gateway(status); rounds(status);
}

let heardAt = null;

async function look() {
  try {
    const answer = await fetch("/status.json", { cache: "no-store", signal: AbortSignal.timeout(10000) });
    if (!answer.ok) throw new Error(`status ${answer.status}`);
    render(await answer.json());
    heardAt = new Date();
    document.body.classList.remove("stale");
  } catch (error) {
    document.body.classList.add("stale");
    $("chip").textContent = "no answer";
    $("chip").className = "chip bad";
    $("state").textContent = heardAt === null ? `the gateway does not answer (${error.message})` : `the gateway does not answer; last heard ${heardAt.toLocaleTimeString()}`;
  }
}

async function watch() {
  if (!document.hidden) await look();
  setTimeout(watch, PAUSE_MS);
}

document.addEventListener("visibilitychange", () => { if (!document.hidden) look(); });
watch();
