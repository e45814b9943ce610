//! Profile of launches: a table on standard error at the end of the program, if `CUTLET_PROFILE=1`
//! is set.
//!
//! On a GPU, the times are those of events around each launch. They are read when many are pending,
//! so that launches do not wait. On the cpu device, the times are those of the clock.

use std::collections::HashMap;
use std::ffi::c_int;
use std::fmt::Write as _;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, Once, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use crate::error::Result;
use crate::ir::Module;
use crate::pass::Work;
use crate::runtime::{Device, Event, Stream};
use crate::util::process::PerProcess;
use crate::util::{report, sort};

/// Limit of launches with pending events. Then the times of the older half are read.
const MAX_PENDING: usize = 512;

/// Limit of launches whose work is cached.
const MAX_WORKS: usize = 4096;

/// Returns true if `CUTLET_PROFILE` is set. It is read once.
#[inline]
pub(crate) fn wanted() -> bool {
    static WANTED: OnceLock<bool> = OnceLock::new();
    *WANTED.get_or_init(|| std::env::var_os("CUTLET_PROFILE").is_some_and(|value| !value.is_empty() && value != "0"))
}

/// Kernel of the profile, from which the work of its launches is computed.
pub(crate) struct Profiled {
    id: u64,
    name: String,
    device: Device,
    module: Module,
}

impl Profiled {
    /// Returns the kernel if the profile is enabled.
    pub fn new(name: &str, device: Device, module: &Module) -> Option<Box<Profiled>> {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        wanted().then(|| {
            let id = COUNT.fetch_add(1, Ordering::Relaxed);
            Box::new(Profiled { id, name: name.to_owned(), device, module: module.clone() })
        })
    }
}

/// Time from the start of a launch to its end.
#[derive(Default)]
pub(crate) enum Span {
    #[default]
    Unknown,
    /// Wall time.
    Host(Duration),
    Begun(Event),
    Device(Event, Event),
}

impl Span {
    /// Begins the measurement before a launch is queued.
    pub fn begin(&mut self, stream: &Stream) {
        // An event of a stream that the program captures belongs to its graph.
        if stream.as_gpu().is_some_and(|stream| stream.is_captured().unwrap_or(true)) {
            return;
        }
        *self = stream.record().map_or(Span::Unknown, Span::Begun);
    }

    /// Ends the measurement after a launch was queued.
    pub fn end(&mut self, stream: &Stream) {
        if let Span::Begun(start) = std::mem::take(self)
            && let Ok(end) = stream.record()
        {
            *self = Span::Device(start, end);
        }
    }

    /// Measures work of the host.
    pub fn of_host<X>(&mut self, work: impl FnOnce() -> Result<X>) -> Result<X> {
        let start = Instant::now();
        let result = work()?;
        *self = Span::Host(start.elapsed());
        Ok(result)
    }
}

/// Lower bound of the work of one launch.
#[derive(Clone, Copy, Default)]
struct Least {
    bytes: f64,
    flops: f64,
    seconds: Option<f64>,
    is_guess: bool,
}

/// Launches of a kernel on a device.
struct Row {
    name: String,
    device: Device,
    launches: u64,
    /// Number of launches with known times, and their sum, minimum and work.
    timed: u64,
    total: Duration,
    least: Duration,
    work: Least,
}

/// Kernel, grid and parameters.
type Launched = (u64, [u32; 3], Box<[u64]>);

#[derive(Default)]
struct Table {
    rows: Vec<Row>,
    works: HashMap<Launched, Least>,
    pending: Vec<(usize, Least, Event, Event)>,
}

static TABLE: PerProcess<Mutex<Option<Table>>> = PerProcess::new();

/// Records a launch.
pub(crate) fn note(kernel: &Profiled, grid: [u32; 3], words: &[u64], span: Span) {
    static AT_EXIT: Once = Once::new();
    AT_EXIT.call_once(|| {
        // The driver is loaded at this point, so it exits after functions that are registered here.
        // If the registration fails, only the table is missing.
        // SAFETY: every C library has this function, and `print_summary` never unwinds.
        let _ = unsafe { atexit(print_summary) };
    });
    let mut table = TABLE.get(Mutex::default).lock().unwrap_or_else(PoisonError::into_inner);
    let table = table.get_or_insert_default();
    let least = table.work(kernel, grid, words);
    let row = table.row(kernel);
    table.rows[row].launches += 1;
    match span {
        Span::Host(time) => table.rows[row].add(time, least),
        Span::Device(start, end) => table.pending.push((row, least, start, end)),
        Span::Begun(_) | Span::Unknown => {}
    }
    if table.pending.len() >= MAX_PENDING {
        table.settle(MAX_PENDING / 2);
    }
}

impl Table {
    fn row(&mut self, kernel: &Profiled) -> usize {
        let found = self.rows.iter().position(|row| row.name == kernel.name && row.device == kernel.device);
        found.unwrap_or_else(|| {
            self.rows.push(Row {
                name: kernel.name.clone(),
                device: kernel.device,
                launches: 0,
                timed: 0,
                total: Duration::ZERO,
                least: Duration::MAX,
                work: Least { seconds: Some(0.0), ..Least::default() },
            });
            self.rows.len() - 1
        })
    }

    fn work(&mut self, kernel: &Profiled, grid: [u32; 3], words: &[u64]) -> Least {
        if self.works.len() >= MAX_WORKS {
            self.works.clear();
        }
        let Profiled { id, device, module, .. } = kernel;
        *self.works.entry((*id, grid, words.into())).or_insert_with(|| {
            let work = Work::new(module, &module.entries[0], grid, words);
            Least {
                bytes: work.bytes(),
                flops: if work.products.is_empty() { work.elementwise } else { work.product_flops() },
                seconds: device.least_time(&work).map(|time| time.as_secs_f64()),
                is_guess: work.is_guess,
            }
        })
    }

    /// Reads the times of the `count` oldest pending launches.
    fn settle(&mut self, count: usize) {
        for (row, least, start, end) in self.pending.drain(..count) {
            if let Ok(time) = end.since(&start) {
                self.rows[row].add(time, least);
            }
        }
    }
}

impl Row {
    fn add(&mut self, time: Duration, work: Least) {
        self.timed += 1;
        self.total += time;
        self.least = self.least.min(time);
        self.work.bytes += work.bytes;
        self.work.flops += work.flops;
        self.work.seconds = self.work.seconds.zip(work.seconds).map(|(a, b)| a + b);
        self.work.is_guess |= work.is_guess;
    }

    fn cells(&self, all: Duration) -> [String; 10] {
        let Row { name, device, launches, timed, total, least, work } = self;
        let place = if device.as_gpu().is_some() { format!("gpu {}", device.id() - 1) } else { "cpu".to_owned() };
        let seconds = total.as_secs_f64();
        let known = |cell: String| if *timed > 0 && seconds > 0.0 { cell } else { "-".to_owned() };
        let guess = if work.is_guess { "~" } else { "" };
        let rate = |amount: f64, unit: f64| match amount {
            0.0 => "-".to_owned(),
            _ => known(format!(
                "{guess}{:.*}",
                if amount / seconds / unit < 10.0 { 3 } else { 1 },
                amount / seconds / unit
            )),
        };
        let micros = |time: f64| known(format!("{:.1}", time * 1e6));
        [
            name.clone(),
            place,
            launches.to_string(),
            known(format!("{:.3}", seconds * 1e3)),
            known(format!("{:.1}", 100.0 * seconds / all.as_secs_f64())),
            micros(seconds / (*timed).max(1) as f64),
            micros(least.as_secs_f64()),
            rate(work.bytes, 1e9),
            rate(work.flops, 1e12),
            work.seconds.map_or("-".to_owned(), |bound| known(format!("{guess}{:.2}", bound / seconds))),
        ]
    }
}

/// Names of the columns.
const HEAD: [&str; 10] =
    ["kernel", "device", "launches", "total ms", "%", "mean us", "min us", "GB/s", "TFLOP/s", "of roofline"];

/// Returns the table as text, sorted by total time in descending order.
fn text(rows: &mut [Row]) -> String {
    sort::by_key(rows, |row| std::cmp::Reverse(row.total));
    let all = rows.iter().map(|row| row.total).sum();
    let mut cells = vec![HEAD.map(str::to_owned)];
    cells.extend(rows.iter().map(|row| row.cells(all)));
    let width = |column: usize| cells.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: [usize; 10] = std::array::from_fn(width);
    let mut out = String::from("cutlet: launches of this program (CUTLET_PROFILE)\n");
    for row in &cells {
        let _ = write!(out, "{:<1$}  {2:<3$}", row[0], widths[0], row[1], widths[1]);
        for (cell, width) in row.iter().zip(widths).skip(2) {
            let _ = write!(out, "  {cell:>width$}");
        }
        out.push('\n');
    }
    out
}

unsafe extern "C" {
    fn atexit(callback: extern "C" fn()) -> c_int;
}

/// Writes the table at the end of the program.
extern "C" fn print_summary() {
    let printed = std::panic::catch_unwind(|| {
        let mut table = TABLE.get(Mutex::default).lock().unwrap_or_else(PoisonError::into_inner);
        let Some(mut table) = table.take() else { return };
        table.settle(table.pending.len());
        report::requested(format_args!("{}", text(&mut table.rows)));
    });
    drop(printed);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_add_up_and_the_longest_is_first() {
        let row = |name: &str| Row {
            name: name.into(),
            device: Device::cpu(),
            launches: 2,
            timed: 0,
            total: Duration::ZERO,
            least: Duration::MAX,
            work: Least { seconds: Some(0.0), ..Least::default() },
        };
        let mut rows = [row("short"), row("long"), row("never_timed")];
        let work = Least { bytes: 3e6, flops: 2e9, seconds: Some(0.5e-3), is_guess: false };
        rows[0].add(Duration::from_millis(1), work);
        rows[1].add(Duration::from_millis(2), work);
        rows[1].add(Duration::from_millis(1), Least { is_guess: true, ..work });
        let text = text(&mut rows);
        let cells: Vec<Vec<&str>> = text.lines().skip(2).map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(cells[0], ["long", "cpu", "2", "3.000", "75.0", "1500.0", "1000.0", "~2.000", "~1.333", "~0.33"]);
        assert_eq!(cells[1], ["short", "cpu", "2", "1.000", "25.0", "1000.0", "1000.0", "3.000", "2.000", "0.50"]);
        assert_eq!(cells[2], ["never_timed", "cpu", "2", "-", "-", "-", "-", "-", "-", "-"]);
        assert!(text.lines().skip(1).all(|line| line.len() == text.lines().nth(1).unwrap().len()), "{text}");
    }
}
