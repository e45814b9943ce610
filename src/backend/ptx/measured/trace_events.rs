//! Trace-viewer file of a measured trace: the JSON trace event format, which Perfetto and
//! `chrome://tracing` open.
//!
//! A CTA on its multiprocessor is a process, and a warp of a role is a thread. Each step is a
//! complete event (`"ph": "X"`). The events of a thread are nested or disjoint, as the format
//! requires: an event that overlaps another one in part has a thread of its own.

use crate::util::collect::CollectVec as _;
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::fmt::Write;

use super::measured_trace::{MeasuredEvent, MeasuredTrace};

/// The key of a thread: multiprocessor, CTA, warp and role.
type ThreadKey<'a> = (u32, [u32; 3], u32, &'a str);

impl MeasuredTrace {
    /// Returns the trace in the JSON trace event format, for Perfetto and `chrome://tracing`.
    ///
    /// A tile block on its multiprocessor is a process, and a warp of a role is a thread. An event
    /// is named by kind, step and line. The steps of the cost model form another process.
    ///
    /// ```
    /// use cutlet::inspect::MeasuredTrace;
    ///
    /// let text = "# kernel\tadd\n# target\tsm_90a\n# dropped\t0\n\
    ///     block\tmultiprocessor\trole\twarp\tstep\tkind\top\tline\tstart_ns\tend_ns\n\
    ///     0,0,0\t7\tall\t0\t2\tcopy\t4\tsrc/add.rs:9:13\t0\t480\n";
    /// let json = MeasuredTrace::from_tsv(text)?.trace_events_json();
    /// assert!(json.contains(r#""name": "copy, step 2, src/add.rs:9:13""#));
    /// assert!(json.contains(r#""ts": 0.000, "dur": 0.480"#)); // microseconds
    /// # Ok::<(), cutlet::Error>(())
    /// ```
    pub fn trace_events_json(&self) -> String {
        let mut lines = Vec::new();
        let process = |event: &MeasuredEvent| {
            let &MeasuredEvent { multiprocessor, block: [x, y, z], .. } = event;
            format!("multiprocessor {multiprocessor}, tile block ({x}, {y}, {z})")
        };
        let processes = write_processes(&self.events, &process, 0, &mut lines);
        write_processes(&self.modelled, &|_| "cost model".to_owned(), processes, &mut lines);
        format!(
            "{{\"displayTimeUnit\": \"ns\", \"otherData\": {{\"kernel\": {}, \"target\": {}, \"dropped\": {}}}, \
             \"traceEvents\": [\n{}\n]}}\n",
            quoted(&self.kernel),
            quoted(&self.target),
            self.dropped,
            lines.join(",\n")
        )
    }
}

/// Writes the processes, threads and events of a list. Returns the number of processes so far.
fn write_processes(
    events: &[MeasuredEvent],
    name: &dyn Fn(&MeasuredEvent) -> String,
    mut processes: usize,
    lines: &mut Vec<String>,
) -> usize {
    let mut threads: BTreeMap<ThreadKey<'_>, Vec<&MeasuredEvent>> = BTreeMap::new();
    for event in events {
        threads.entry((event.multiprocessor, event.block, event.warp, &event.role)).or_default().push(event);
    }
    let (mut process, mut number) = (None, 0);
    for ((multiprocessor, block, warp, role), events) in threads {
        if process != Some((multiprocessor, block)) {
            process = Some((multiprocessor, block));
            processes += 1;
            number = 0;
            lines.push(metadata("process_name", (processes, 0), &name(events[0])));
        }
        for events in nested(events) {
            number += 1;
            lines.push(metadata("thread_name", (processes, number), &format!("{role}, warp {warp}")));
            lines.extend(events.into_iter().map(|event| complete(event, (processes, number))));
        }
    }
    processes
}

/// Distributes the events of a warp to threads, in which events are nested or disjoint. An event
/// precedes the events that it contains.
fn nested(mut events: Vec<&MeasuredEvent>) -> Vec<Vec<&MeasuredEvent>> {
    crate::util::sort::by_key(&mut events, |event| (event.start, Reverse(event.end)));
    // Events of each thread, and the ends of those that are open.
    let mut threads: Vec<(Vec<&MeasuredEvent>, Vec<u64>)> = Vec::new();
    for event in events {
        let is_free = |(_, open): &mut (Vec<&MeasuredEvent>, Vec<u64>)| {
            while open.pop_if(|end| *end <= event.start).is_some() {}
            open.last().is_none_or(|&end| event.end <= end)
        };
        let index = threads.iter_mut().position(is_free).unwrap_or(threads.len());
        if index == threads.len() {
            threads.push(Default::default());
        }
        threads[index].0.push(event);
        threads[index].1.push(event.end);
    }
    threads.into_iter().map(|(events, _)| events).collect_vec()
}

fn metadata(kind: &str, (process, thread): (usize, usize), name: &str) -> String {
    format!(
        "{{\"ph\": \"M\", \"name\": \"{kind}\", \"pid\": {process}, \"tid\": {thread}, \"args\": {{\"name\": {}}}}}",
        quoted(name)
    )
}

/// Returns a complete event. Times are microseconds.
fn complete(event: &MeasuredEvent, (process, thread): (usize, usize)) -> String {
    let MeasuredEvent { step, run, kind, op, line, start, end, .. } = event;
    let micros = |nanos: u64| format!("{}.{:03}", nanos / 1000, nanos % 1000);
    let name = match line {
        Some(line) => format!("{kind}, step {step}, {line}"),
        None => format!("{kind}, step {step}"),
    };
    let run = run.map_or_else(String::new, |[first, last]| format!(", \"run\": [{first}, {last}]"));
    let op = op.map_or_else(String::new, |op| format!(", \"op\": {op}"));
    let line = line.as_ref().map_or_else(String::new, |line| format!(", \"line\": {}", quoted(line)));
    format!(
        "{{\"ph\": \"X\", \"name\": {}, \"cat\": {}, \"pid\": {process}, \"tid\": {thread}, \"ts\": {}, \"dur\": {}, \
         \"args\": {{\"step\": {step}{run}{op}{line}}}}}",
        quoted(&name),
        quoted(kind),
        micros(*start),
        micros(end - start),
    )
}

/// Returns a JSON string (RFC 8259, section 7).
fn quoted(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for c in text.chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            '\u{0}'..='\u{1f}' => {
                // Writing to a string cannot fail.
                let _ = write!(out, "\\u{:04x}", u32::from(c));
            }
            c => out.push(c),
        }
    }
    out.push('"');
    out
}
