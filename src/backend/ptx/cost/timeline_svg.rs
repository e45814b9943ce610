//! Timeline of a simulation as SVG: one lane for each warp group and one for each resource, over
//! cycles. A bar of a warp group names the event and the user's file and line. Its colour is the
//! kind of the event, which a legend explains; a bar of a resource has the colour of its warp
//! group.
//!
//! The first panel is one steady iteration of the first innermost loop with MMAs, or the CTA
//! if no loop has MMAs. With ping-pong, a second panel shows the whole CTA.

use std::fmt::Write;

use super::discrete_event::EventReplay;
use super::events::{Event, EventKind, EventPrograms};
use super::resource_use::Resource;
use super::warp_walk::IterationTiming;

/// Sizes in pixels.
const LEFT: f64 = 150.0;
const WIDTH: f64 = 1250.0;
const LANE: f64 = 30.0;
const UNIT: f64 = 20.0;
const GAP: f64 = 6.0;
const HEAD: f64 = 34.0;
const AXIS: f64 = 34.0;
const LETTER: f64 = 6.2;
const LEGEND_HEIGHT: f64 = 26.0;
/// Fraction of an iteration that is drawn before and after it.
const MARGIN: f64 = 0.04;
/// Approximate number of ticks of the axis.
const TICKS: f64 = 10.0;

const STYLE: &str = "<style>text{font:11px ui-sans-serif,Helvetica,Arial,sans-serif;fill:#24292f}.h{font-size:14px;font-weight:600}\
.l{font-weight:600}.s{fill:#57606a}.w{fill:#57606a;font-size:10px}.c{font-size:10px;fill:#fff}</style>\
<defs><pattern id=\"wait\" width=\"6\" height=\"6\" patternUnits=\"userSpaceOnUse\" patternTransform=\"rotate(45)\">\
<rect width=\"6\" height=\"6\" fill=\"#eef0f3\"/><rect width=\"2\" height=\"6\" fill=\"#cfd5dc\"/></pattern></defs>";

const INSTRUCTIONS: &str = "#0969da";
const MMA: &str = "#8250df";
const TMA_LOAD: &str = "#1a7f37";
const TMA_STORE: &str = "#bc4c00";
const PIPELINE: &str = "#6e7781";
const ORDER: &str = "#9a6700";
const LOOP: &str = "#8c959f";
const WAIT: &str = "url(#wait)";

/// Colours of the kinds of events, with their names.
pub const LEGEND: [(&str, &str); 8] = [
    (INSTRUCTIONS, "instructions"),
    (MMA, "MMA"),
    (TMA_LOAD, "TMA load"),
    (TMA_STORE, "TMA store"),
    (PIPELINE, "pipeline and MMA barriers"),
    (ORDER, "order barriers"),
    (LOOP, "loop control"),
    (WAIT, "wait"),
];

/// A span of time that a panel shows.
struct TimeWindow {
    title: String,
    from: f64,
    to: f64,
    /// Start and end of the iteration.
    marks: Option<(f64, f64)>,
}

/// Draws a simulation.
pub fn draw(programs: &EventPrograms, replay: &EventReplay, title: &str) -> String {
    let windows = windows(programs, replay);
    let lanes = replay.warp_groups.len() as f64 * (LANE + GAP) + Resource::ALL.len() as f64 * (UNIT + GAP);
    let panel = HEAD + lanes + AXIS;
    let top = 40.0 + LEGEND_HEIGHT;
    let (width, height) = (LEFT + WIDTH + 30.0, top + windows.len() as f64 * panel);
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" viewBox=\"0 0 {width} {height}\">\n\
         {STYLE}\n<rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n<text class=\"h\" x=\"12\" y=\"24\">{}</text>\n",
        escaped(title)
    );
    legend(&mut out);
    for (index, window) in windows.iter().enumerate() {
        let mut panel = Panel { programs, replay, window, top: top + index as f64 * panel, out: &mut out };
        panel.draw();
    }
    out += "</svg>\n";
    out
}

/// Draws a square and a name for each kind of event.
fn legend(out: &mut String) {
    let mut x = LEFT;
    for (fill, name) in LEGEND {
        // Writing to a string cannot fail.
        let _ = writeln!(
            out,
            "<rect x=\"{x}\" y=\"38\" width=\"12\" height=\"12\" rx=\"2\" fill=\"{fill}\"/>\
             <text x=\"{}\" y=\"48\">{name}</text>",
            x + 17.0
        );
        x += 40.0 + name.len() as f64 * LETTER;
    }
}

/// Returns start and end of an iteration in the steady part of a loop.
fn middle(timings: &IterationTiming) -> Option<(f64, f64)> {
    let count = timings.starts.len();
    let at = (count * 3 / 4).min(count.checked_sub(1)?);
    let end = timings.starts.get(at + 1).map_or(timings.end, |&(_, start)| start);
    Some((timings.starts[at].1, end))
}

fn windows(programs: &EventPrograms, replay: &EventReplay) -> Vec<TimeWindow> {
    let mut windows = Vec::new();
    let of_first = |timings: &&IterationTiming| {
        let warp_group = &replay.warp_groups[timings.warp_group];
        warp_group.block == 0 && warp_group.group == 0 && !warp_group.loads(programs)
    };
    let inner = programs.loops.iter().position(|timing| timing.has_mma && !timing.outer);
    let iteration_timings = || replay.iteration_timings.iter().filter(of_first);
    let whole = |windows: &mut Vec<TimeWindow>| {
        let title = "a tile block, as far as it was simulated".to_owned();
        windows.push(TimeWindow { title, from: 0.0, to: replay.end, marks: None });
    };
    let Some((from, to)) = inner.and_then(|inner| {
        let iteration_timings: Vec<&IterationTiming> =
            iteration_timings().filter(|timings| timings.loop_index == inner).collect();
        middle(iteration_timings.get(iteration_timings.len() / 2)?)
    }) else {
        whole(&mut windows);
        return windows;
    };
    let source = inner.map_or("", |inner| &programs.loops[inner].source);
    let margin = (to - from) * MARGIN;
    let title = format!("one iteration of the loop at {source}: {:.0} cycles", to - from);
    windows.push(TimeWindow { title, from: from - margin, to: to + margin, marks: Some((from, to)) });
    if programs.loops.iter().any(|timing| timing.pingpong.is_some()) {
        whole(&mut windows);
    }
    windows
}

struct Panel<'a> {
    programs: &'a EventPrograms,
    replay: &'a EventReplay,
    window: &'a TimeWindow,
    top: f64,
    out: &'a mut String,
}

impl Panel<'_> {
    fn x(&self, time: f64) -> f64 {
        let TimeWindow { from, to, .. } = self.window;
        LEFT + (time.clamp(*from, *to) - from) / (to - from).max(1.0) * WIDTH
    }

    fn shows(&self, start: f64, end: f64) -> bool {
        end > self.window.from && start < self.window.to
    }

    fn draw(&mut self) {
        let mut y = self.top + HEAD;
        let title = escaped(&self.window.title);
        // Writing to a string cannot fail.
        let _ = writeln!(self.out, "<text class=\"l\" x=\"12\" y=\"{}\">{title}</text>", self.top + 18.0);
        for number in 0..self.replay.warp_groups.len() {
            self.warp_group(number, y);
            y += LANE + GAP;
        }
        for resource in Resource::ALL {
            self.resource(resource, y);
            y += UNIT + GAP;
        }
        self.axis(y);
    }

    /// Returns the name of a warp group.
    fn name(&self, number: usize) -> String {
        let warp_group = &self.replay.warp_groups[number];
        let plan = &self.programs.partitions[warp_group.partition];
        let mut name = plan.role.to_string();
        if plan.pingpong_groups > 1 {
            let _ = write!(name, ", ping-pong group {}", warp_group.pingpong_group);
        }
        if plan.groups > 1 {
            let _ = write!(name, ", warps {}", warp_group.group as u32 * plan.warps);
            let _ = write!(name, "..{}", (warp_group.group as u32 + 1) * plan.warps);
        }
        if self.replay.warp_groups.iter().any(|other| other.block > 0) {
            name = format!("block {}, {name}", warp_group.block);
        }
        name
    }

    fn lane(&mut self, name: &str, (y, height): (f64, f64), class: &str) {
        let _ = writeln!(
            self.out,
            "<rect x=\"{LEFT}\" y=\"{y}\" width=\"{WIDTH}\" height=\"{height}\" fill=\"#f6f8fa\"/>\
             <text class=\"{class}\" x=\"{}\" y=\"{}\" text-anchor=\"end\">{}</text>",
            LEFT - 8.0,
            y + height / 2.0 + 4.0,
            escaped(name)
        );
    }

    fn warp_group(&mut self, number: usize, y: f64) {
        let name = self.name(number);
        self.lane(&name, (y, LANE), "l");
        let _ = writeln!(
            self.out,
            "<rect x=\"{}\" y=\"{y}\" width=\"4\" height=\"{LANE}\" fill=\"{}\"/>",
            LEFT - 5.0,
            group_colour(number)
        );
        let mut runs: Vec<((usize, usize), bool, f64, f64)> = Vec::new();
        for span in
            self.replay.spans.iter().filter(|span| span.warp_group == number && self.shows(span.start, span.end))
        {
            match runs.last_mut() {
                Some((event, waits, _, end))
                    if (*event, *waits) == (span.event, span.waits) && span.start - *end < 1.0 =>
                {
                    *end = span.end;
                }
                _ => runs.push((span.event, span.waits, span.start, span.end)),
            }
        }
        for (event, waits, start, end) in runs {
            let event = self.programs.lists[event.0].get(event.1);
            let label = event.map_or_else(|| "stores".to_owned(), named);
            let fill = if waits { WAIT } else { event.map_or(LOOP, |event| colour(&event.what)) };
            let said = if waits { format!("wait: {label}") } else { label };
            self.bar(&said, (start, end), (y, LANE), (fill, if waits { "w" } else { "c" }));
        }
    }

    fn resource(&mut self, resource: Resource, y: f64) {
        let (from, to) = self.window.marks.unwrap_or((self.window.from, self.window.to));
        let mut busy = 0.0;
        let mut runs: Vec<(usize, (usize, usize), f64, f64)> = Vec::new();
        for used in self
            .replay
            .resource_spans
            .iter()
            .filter(|used| used.resource == resource && self.shows(used.start, used.end))
        {
            busy += (used.end.min(to) - used.start.max(from)).max(0.0);
            match runs.last_mut() {
                Some((warp_group, event, _, end))
                    if (*warp_group, *event) == (used.warp_group, used.event) && used.start - *end < 1.0 =>
                {
                    *end = used.end;
                }
                _ => runs.push((used.warp_group, used.event, used.start, used.end)),
            }
        }
        let share = (100.0 * busy / (to - from).max(1.0)).round();
        self.lane(&format!("{} {share} %", resource.name()), (y, UNIT), "s");
        for (warp_group, event, start, end) in runs {
            let event = self.programs.lists[event.0].get(event.1);
            let label = event.map_or_else(|| "stores".to_owned(), named);
            self.bar(&label, (start, end), (y, UNIT), (group_colour(warp_group), "c"));
        }
    }

    fn bar(&mut self, label: &str, (start, end): (f64, f64), (y, height): (f64, f64), (fill, class): (&str, &str)) {
        let (left, right) = (self.x(start), self.x(end));
        let width = right - left;
        if width < 0.15 {
            return;
        }
        let label = escaped(label);
        let _ = writeln!(
            self.out,
            "<rect x=\"{left:.2}\" y=\"{y}\" width=\"{width:.2}\" height=\"{height}\" rx=\"{}\" fill=\"{fill}\">\
             <title>{label}: {:.0} cycles</title></rect>",
            if width > 6.0 { 2 } else { 0 },
            end - start
        );
        let short = label.split(' ').next().unwrap_or_default();
        let first = label.split(" and ").next().unwrap_or_default();
        let line = first.rsplit_once(':').map_or_else(String::new, |(_, line)| format!("{short} {line}"));
        for text in [&*label, first, &line, short] {
            if !text.is_empty() && text.len() as f64 * LETTER + 6.0 < width {
                let _ = writeln!(
                    self.out,
                    "<text class=\"{class}\" x=\"{:.2}\" y=\"{}\" text-anchor=\"middle\">{text}</text>",
                    left + width / 2.0,
                    y + height / 2.0 + 3.5
                );
                return;
            }
        }
    }

    fn axis(&mut self, y: f64) {
        let TimeWindow { from, to, marks, .. } = self.window;
        let zero = marks.map_or(0.0, |(start, _)| start);
        let rough = ((to - from) / TICKS).max(1.0);
        let power = 10f64.powf(rough.log10().floor());
        let step = [1.0, 2.0, 5.0, 10.0]
            .into_iter()
            .map(|resource| resource * power)
            .find(|&step| step >= rough)
            .unwrap_or(rough);
        let mut tick = ((from - zero) / step).ceil() * step + 0.0;
        while zero + tick <= *to {
            let x = self.x(zero + tick);
            let _ = writeln!(
                self.out,
                "<line x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{}\" y2=\"{y}\" stroke=\"#d0d7de\" stroke-width=\"0.5\"/>\
                 <text class=\"s\" x=\"{x:.1}\" y=\"{}\" text-anchor=\"middle\">{:.0}</text>",
                self.top + HEAD - 4.0,
                y + 14.0,
                tick + 0.0
            );
            tick += step;
        }
        for x in marks.iter().flat_map(|&(start, end)| [start, end]).map(|time| self.x(time)).collect::<Vec<_>>() {
            let _ = writeln!(
                self.out,
                "<line x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{}\" y2=\"{y}\" stroke=\"#cf222e\" stroke-width=\"1\" stroke-dasharray=\"4 3\"/>",
                self.top + HEAD - 8.0
            );
        }
    }
}

fn colour(what: &EventKind) -> &'static str {
    match what {
        EventKind::Work(_) => INSTRUCTIONS,
        EventKind::Mma { .. } => MMA,
        EventKind::Produce(_) => TMA_LOAD,
        EventKind::TmaStore { .. } => TMA_STORE,
        EventKind::Advance(_)
        | EventKind::ConsumerWait(_)
        | EventKind::MmaWait { .. }
        | EventKind::ConsumerRelease(_) => PIPELINE,
        EventKind::OrderWait(_) | EventKind::OrderArrive(_) => ORDER,
        EventKind::Loop(_) => LOOP,
    }
}

/// Returns the colour of a warp group.
fn group_colour(warp_group: usize) -> &'static str {
    ["#8250df", "#0969da", "#1a7f37", "#bc4c00", "#bf3989", "#9a6700"][warp_group % 6]
}

/// Returns the label of an event. Merged events have the label of the longest one.
fn named(event: &Event) -> String {
    match event.count {
        1 => event.label.clone(),
        count => format!("{} and {} more", event.label, count - 1),
    }
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}
