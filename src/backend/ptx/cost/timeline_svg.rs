//! Timeline as SVG: panels with one lane for each warp group and one for each resource, over time.
//!
//! A bar of a warp group names a step and the user's file and line. Its colour is the kind of the
//! step, which a legend explains; a bar of a resource has the colour of its warp group.
//! `simulated_timeline` makes the panels of a simulation, and `launch::trace` those of a recorded
//! run.

use crate::util::collect::CollectVec as _;
use std::fmt::Write;

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
/// Approximate number of ticks of the axis.
const TICKS: f64 = 10.0;

const STYLE: &str = "<style>text{font:11px ui-sans-serif,Helvetica,Arial,sans-serif;fill:#24292f}.h{font-size:14px;font-weight:600}\
.l{font-weight:600}.s{fill:#57606a}.w{fill:#57606a;font-size:10px}.c{font-size:10px;fill:#fff}</style>\
<defs><pattern id=\"wait\" width=\"6\" height=\"6\" patternUnits=\"userSpaceOnUse\" patternTransform=\"rotate(45)\">\
<rect width=\"6\" height=\"6\" fill=\"#eef0f3\"/><rect width=\"2\" height=\"6\" fill=\"#cfd5dc\"/></pattern></defs>";

/// Kind of a bar of a warp group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BarKind {
    Instructions,
    Mma,
    Load,
    Store,
    Pipeline,
    Order,
    Loop,
    Wait,
}

impl BarKind {
    pub const ALL: [BarKind; 8] = [
        BarKind::Instructions,
        BarKind::Mma,
        BarKind::Load,
        BarKind::Store,
        BarKind::Pipeline,
        BarKind::Order,
        BarKind::Loop,
        BarKind::Wait,
    ];

    /// Returns the colour and the name in the legend.
    pub const fn legend(self) -> (&'static str, &'static str) {
        match self {
            BarKind::Instructions => ("#0969da", "instructions"),
            BarKind::Mma => ("#8250df", "MMA"),
            BarKind::Load => ("#1a7f37", "TMA load"),
            BarKind::Store => ("#bc4c00", "TMA store"),
            BarKind::Pipeline => ("#6e7781", "pipeline and MMA barriers"),
            BarKind::Order => ("#9a6700", "order barriers"),
            BarKind::Loop => ("#8c959f", "loop control"),
            BarKind::Wait => ("url(#wait)", "wait"),
        }
    }
}

/// Returns the colour of a warp group.
pub fn group_colour(warp_group: usize) -> &'static str {
    ["#8250df", "#0969da", "#1a7f37", "#bc4c00", "#bf3989", "#9a6700"][warp_group % 6]
}

/// A span of time of a lane.
#[derive(Clone, Debug)]
pub struct Bar {
    pub label: String,
    pub start: f64,
    pub end: f64,
    pub fill: &'static str,
}

/// A lane of a panel.
#[derive(Clone, Debug)]
pub struct Lane {
    pub name: String,
    /// Colour of a warp group; `None` for a resource.
    pub group: Option<&'static str>,
    pub bars: Vec<Bar>,
}

impl Lane {
    fn height(&self) -> f64 {
        if self.group.is_some() { LANE } else { UNIT }
    }
}

/// Lanes over a span of time.
#[derive(Clone, Debug)]
pub struct Panel {
    pub title: String,
    pub from: f64,
    pub to: f64,
    /// Start and end of the iteration.
    pub marks: Option<(f64, f64)>,
    /// Unit of time.
    pub unit: &'static str,
    pub lanes: Vec<Lane>,
}

impl Panel {
    fn height(&self) -> f64 {
        HEAD + self.lanes.iter().map(|lane| lane.height() + GAP).sum::<f64>() + AXIS
    }
}

/// Draws panels below each other.
pub fn draw(title: &str, panels: &[Panel]) -> String {
    let top = 40.0 + LEGEND_HEIGHT;
    let (width, height) = (LEFT + WIDTH + 30.0, top + panels.iter().map(Panel::height).sum::<f64>());
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" viewBox=\"0 0 {width} {height}\">\n\
         {STYLE}\n<rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n<text class=\"h\" x=\"12\" y=\"24\">{}</text>\n",
        escaped(title)
    );
    legend(&mut out);
    let mut y = top;
    for panel in panels {
        PanelWriter { panel, top: y, out: &mut out }.draw();
        y += panel.height();
    }
    out += "</svg>\n";
    out
}

/// Draws a square and a name for each kind of event.
fn legend(out: &mut String) {
    let mut x = LEFT;
    for (fill, name) in BarKind::ALL.map(BarKind::legend) {
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

struct PanelWriter<'a> {
    panel: &'a Panel,
    top: f64,
    out: &'a mut String,
}

impl PanelWriter<'_> {
    fn x(&self, time: f64) -> f64 {
        let Panel { from, to, .. } = self.panel;
        LEFT + (time.clamp(*from, *to) - from) / (to - from).max(1.0) * WIDTH
    }

    fn draw(&mut self) {
        let panel = self.panel;
        let mut y = self.top + HEAD;
        let title = escaped(&panel.title);
        // Writing to a string cannot fail.
        let _ = writeln!(self.out, "<text class=\"l\" x=\"12\" y=\"{}\">{title}</text>", self.top + 18.0);
        for lane in &panel.lanes {
            self.lane(lane, y);
            y += lane.height() + GAP;
        }
        self.axis(y);
    }

    fn lane(&mut self, lane: &Lane, y: f64) {
        let height = lane.height();
        let _ = writeln!(
            self.out,
            "<rect x=\"{LEFT}\" y=\"{y}\" width=\"{WIDTH}\" height=\"{height}\" fill=\"#f6f8fa\"/>\
             <text class=\"{}\" x=\"{}\" y=\"{}\" text-anchor=\"end\">{}</text>",
            if lane.group.is_some() { "l" } else { "s" },
            LEFT - 8.0,
            y + height / 2.0 + 4.0,
            escaped(&lane.name)
        );
        if let Some(colour) = lane.group {
            let _ = writeln!(
                self.out,
                "<rect x=\"{}\" y=\"{y}\" width=\"4\" height=\"{LANE}\" fill=\"{colour}\"/>",
                LEFT - 5.0,
            );
        }
        for bar in lane.bars.iter().filter(|bar| bar.end > self.panel.from && bar.start < self.panel.to) {
            self.bar(bar, (y, height));
        }
    }

    fn bar(&mut self, &Bar { ref label, start, end, fill }: &Bar, (y, height): (f64, f64)) {
        let (left, right) = (self.x(start), self.x(end));
        let width = right - left;
        if width < 0.15 {
            return;
        }
        let (label, unit) = (escaped(label), self.panel.unit);
        let class = if fill == BarKind::Wait.legend().0 { "w" } else { "c" };
        let _ = writeln!(
            self.out,
            "<rect x=\"{left:.2}\" y=\"{y}\" width=\"{width:.2}\" height=\"{height}\" rx=\"{}\" fill=\"{fill}\">\
             <title>{label}: {:.0} {unit}</title></rect>",
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
        let Panel { from, to, marks, .. } = self.panel;
        let zero = marks.map_or(0.0, |(start, _)| start);
        let rough = ((to - from) / TICKS).max(1.0);
        let power = 10f64.powf(rough.log10().floor());
        let step =
            [1.0, 2.0, 5.0, 10.0].into_iter().map(|factor| factor * power).find(|&step| step >= rough).unwrap_or(rough);
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
        for x in marks.iter().flat_map(|&(start, end)| [start, end]).map(|time| self.x(time)).collect_vec() {
            let _ = writeln!(
                self.out,
                "<line x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{}\" y2=\"{y}\" stroke=\"#cf222e\" stroke-width=\"1\" stroke-dasharray=\"4 3\"/>",
                self.top + HEAD - 8.0
            );
        }
    }
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}
