//! Events of a traced launch, and their text form.
//!
//! The text has tab-separated values. Lines with kernel, target and number of dropped events begin
//! with `#`. A line with the names of the columns follows, then one line per event. `-` is an
//! absent value. The step of a run of computations is `STEP:FIRST-LAST`. Tabs, line breaks and
//! backslashes of a text are escaped. Events of the cost model have the block `model`.

use crate::util::collect::CollectVec as _;
use std::fmt::Write;

use crate::error::{Error, Result};

/// Measured steps of one launch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct MeasuredTrace {
    /// Name of the kernel.
    pub kernel: String,
    /// Target of the code, such as `sm_90a`.
    pub target: String,
    /// Events in the order of their start.
    pub events: Vec<MeasuredEvent>,
    /// Number of events that did not fit into the buffers of their warp roles.
    pub dropped: u64,
    /// Steps of one tile block by the cost model.
    pub modelled: Vec<MeasuredEvent>,
}

/// One execution of a step of the schedule by one warp.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct MeasuredEvent {
    /// Number of the CTA along the axes of the grid.
    pub block: [u32; 3],
    /// Number of the multiprocessor that executed the CTA.
    pub multiprocessor: u32,
    /// Warp role: `all`, `consumer` or `producer`.
    pub role: String,
    /// Number of the warp in the CTA.
    pub warp: u32,
    /// Line of the step in the full schedule (the file `NAME.schedule`), from 1.
    pub step: u32,
    /// First and last step of a run of computations with one event. `step` is its largest one.
    pub run: Option<[u32; 2]>,
    /// Kind of the step: `wait`, `arrive`, `mma`, `copy`, `store` or `compute`.
    pub kind: String,
    /// Number of the op in the schedule.
    pub op: Option<u32>,
    /// The user's line as `file:line:column`.
    pub line: Option<String>,
    /// Start in nanoseconds since the first event of the launch.
    pub start: u64,
    /// End in nanoseconds since the first event of the launch.
    pub end: u64,
}

const COLUMNS: [&str; 10] =
    ["block", "multiprocessor", "role", "warp", "step", "kind", "op", "line", "start_ns", "end_ns"];
const ABSENT: &str = "-";
/// Block of the events of the cost model.
const MODEL: &str = "model";

impl MeasuredTrace {
    /// Returns the text form, with one line per event.
    pub fn to_tsv(&self) -> String {
        let mut text = format!(
            "# kernel\t{}\n# target\t{}\n# dropped\t{}\n{}\n",
            escaped(&self.kernel),
            escaped(&self.target),
            self.dropped,
            COLUMNS.join("\t")
        );
        for event in &self.events {
            let [x, y, z] = event.block;
            write_event(&mut text, &format!("{x},{y},{z}"), event);
        }
        self.modelled.iter().for_each(|event| write_event(&mut text, MODEL, event));
        text
    }

    /// Parses the text form.
    ///
    /// # Errors
    /// [`Error::Argument`] with the number of the first line that has another form.
    pub fn from_tsv(text: &str) -> Result<MeasuredTrace> {
        let mut trace = MeasuredTrace::default();
        let mut has_columns = false;
        for (index, line) in text.lines().enumerate() {
            let parsed = match line.strip_prefix("# ") {
                Some(header) => trace.read_header(header),
                None if !has_columns => {
                    has_columns = true;
                    (line.split('\t').eq(COLUMNS)).then_some(())
                }
                None => match line.strip_prefix(MODEL) {
                    Some(rest) => event(&format!("0,0,0{rest}")).map(|event| trace.modelled.push(event)),
                    None => event(line).map(|event| trace.events.push(event)),
                },
            };
            if parsed.is_none() {
                let number = index + 1;
                return Err(Error::argument(format!("line {number} of a trace has another form: `{line}`")));
            }
        }
        match has_columns {
            true => Ok(trace),
            false => Err(Error::argument("a trace without a line of column names".to_owned())),
        }
    }

    fn read_header(&mut self, header: &str) -> Option<()> {
        let (name, value) = header.split_once('\t')?;
        match name {
            "kernel" => self.kernel = plain(value)?,
            "target" => self.target = plain(value)?,
            "dropped" => self.dropped = value.parse().ok()?,
            _ => return None,
        }
        Some(())
    }
}

fn write_event(text: &mut String, block: &str, event: &MeasuredEvent) {
    let MeasuredEvent { block: _, multiprocessor, role, warp, step, run, kind, op, line, start, end } = event;
    let run = run.map_or_else(String::new, |[first, last]| format!(":{first}-{last}"));
    let op = op.map_or(ABSENT.to_owned(), |op| op.to_string());
    let line = line.as_deref().map_or(ABSENT.to_owned(), escaped);
    let (role, kind) = (escaped(role), escaped(kind));
    // Writing to a string cannot fail.
    let _ =
        writeln!(text, "{block}\t{multiprocessor}\t{role}\t{warp}\t{step}{run}\t{kind}\t{op}\t{line}\t{start}\t{end}");
}

fn event(line: &str) -> Option<MeasuredEvent> {
    let columns: Vec<&str> = line.split('\t').collect_vec();
    let [block, multiprocessor, role, warp, step, kind, op, line, start, end] = columns.try_into().ok()?;
    let block: Vec<u32> = block.split(',').map(str::parse).collect::<std::result::Result<_, _>>().ok()?;
    let optional = |text: &str| if text == ABSENT { None } else { Some(text.to_owned()) };
    let (start, end) = (start.parse().ok()?, end.parse().ok()?);
    (start <= end).then_some(())?;
    let (step, run) = match step.split_once(':') {
        Some((step, run)) => (step, Some(run.split_once('-')?)),
        None => (step, None),
    };
    Some(MeasuredEvent {
        block: block.try_into().ok()?,
        multiprocessor: multiprocessor.parse().ok()?,
        role: plain(role)?,
        warp: warp.parse().ok()?,
        step: step.parse().ok()?,
        run: match run {
            Some((first, last)) => Some([first.parse().ok()?, last.parse().ok()?]),
            None => None,
        },
        kind: plain(kind)?,
        op: match optional(op) {
            Some(op) => Some(op.parse().ok()?),
            None => None,
        },
        line: match optional(line) {
            Some(line) => Some(plain(&line)?),
            None => None,
        },
        start,
        end,
    })
}

/// Returns a text without tabs and line breaks. A text that equals the mark of an absent value is
/// escaped, too.
fn escaped(text: &str) -> String {
    if text == ABSENT {
        return format!("\\{ABSENT}");
    }
    text.replace('\\', "\\\\").replace('\t', "\\t").replace('\n', "\\n").replace('\r', "\\r")
}

/// Returns the text of an escaped one; `None` for an unknown escape.
fn plain(escaped: &str) -> Option<String> {
    let (mut text, mut chars) = (String::with_capacity(escaped.len()), escaped.chars());
    while let Some(c) = chars.next() {
        text.push(match c {
            '\\' => match chars.next()? {
                't' => '\t',
                'n' => '\n',
                'r' => '\r',
                c @ ('\\' | '-') => c,
                _ => return None,
            },
            c => c,
        });
    }
    Some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn traced() -> MeasuredTrace {
        let first = MeasuredEvent {
            block: [3, 0, 1],
            multiprocessor: 131,
            role: "consumer".to_owned(),
            warp: 4,
            step: 17,
            run: None,
            kind: "wait".to_owned(),
            op: Some(32),
            line: Some("src\\a\tb.rs:7:15".to_owned()),
            start: 0,
            end: 1024,
        };
        let second = MeasuredEvent { op: None, line: None, run: Some([15, 19]), start: 64, end: 64, ..first.clone() };
        let third = MeasuredEvent { line: Some("-".to_owned()), ..first.clone() };
        let modelled = vec![MeasuredEvent { block: [0; 3], end: 900, ..first.clone() }];
        let events = vec![first, third, second];
        MeasuredTrace { kernel: "product\n".to_owned(), target: "sm_90a".to_owned(), events, dropped: 12, modelled }
    }

    #[test]
    fn text_form_keeps_everything() {
        let trace = traced();
        let text = trace.to_tsv();
        assert_eq!(text.lines().count(), 4 + trace.events.len() + 1, "{text}");
        assert_eq!(MeasuredTrace::from_tsv(&text).unwrap(), trace);
    }

    #[test]
    fn faulty_lines_are_named() {
        let text = traced().to_tsv();
        let planted = [
            ("\t131\t", "\tx\t", "line 5"),
            ("# dropped\t12", "# dropped\t-1", "line 3"),
            ("block\t", "blocks\t", "line 4"),
            ("\t0\t1024", "\t1025\t1024", "line 5"),
            ("3,0,1", "3,0", "line 5"),
            ("\\tb.rs", "\\xb.rs", "line 5"),
            ("17:15-19", "17:15", "line 7"),
            ("\t-\t64", "\t64", "line 7"),
        ];
        for (from, to, line) in planted {
            assert!(text.contains(from), "{from}");
            let error = MeasuredTrace::from_tsv(&text.replacen(from, to, 1)).unwrap_err().to_string();
            assert!(error.contains(line), "{error}");
        }
        assert!(MeasuredTrace::from_tsv("# kernel\tx\n").is_err());
    }
}
