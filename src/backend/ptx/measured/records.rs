//! Records of a traced launch in device memory, and their conversion to events.
//!
//! A recorder is a role of a CTA, or a warp group of its consumers. It has one slot: a header, and
//! [`EVENTS`] records of four words (site, clock before, clock after, number of the record). The
//! slot of recorder r of CTA n is n × recorders + r.
//!
//! Times are converted from cycles to nanoseconds: each header has `%clock` and `%globaltimer` at
//! the start and at the end. The rate is that of the sums over all headers. The origin of a CTA is
//! its own global timer, whose resolution is the error between CTAs.

use std::cmp::Reverse;

use super::{MeasuredEvent, MeasuredTrace};
use crate::error::{Diagnostic, Error, Result};

/// Recorded CTAs have numbers below this one.
pub const SLOTS: u32 = 256;
/// CTAs below this number are recorded on every multiprocessor.
pub const FIRST_BLOCKS: u32 = 16;
/// Later CTAs are recorded on multiprocessors whose number is a multiple of this one, a power of
/// two.
pub const SAMPLED_MULTIPROCESSORS: u32 = 16;
/// Records of a recorder. Later ones are only counted.
pub const EVENTS: u32 = 512;

/// Bytes of a record.
pub const RECORD_BYTES: u32 = 16;
/// Bytes of the header of a slot.
pub const HEADER_BYTES: u32 = 64;
/// Bytes of a slot.
pub const SLOT_BYTES: u32 = HEADER_BYTES + EVENTS * RECORD_BYTES;

const SLOT_WORDS: usize = SLOT_BYTES as usize / 4;
const HEADER_WORDS: usize = HEADER_BYTES as usize / 4;
const RECORD_WORDS: usize = RECORD_BYTES as usize / 4;

/// A field of a header, in 32-bit words. A time has two words.
#[derive(Clone, Copy, Debug)]
pub enum HeaderField {
    /// 1 in a slot with a header.
    Begun,
    /// Number of the CTA along an axis.
    Block(usize),
    Multiprocessor,
    Warp,
    StartClock,
    StartTime,
    /// 1 after the last record.
    Ended,
    /// Number of records, also of those without space.
    Count,
    EndClock,
    EndTime,
}

impl HeaderField {
    /// Returns the index of the first word of the field.
    pub fn word(self) -> usize {
        match self {
            HeaderField::Begun => 0,
            HeaderField::Block(axis) => 1 + axis,
            HeaderField::Multiprocessor => 4,
            HeaderField::Warp => 5,
            HeaderField::StartClock => 6,
            HeaderField::StartTime => 8,
            HeaderField::Ended => 10,
            HeaderField::Count => 11,
            HeaderField::EndClock => 12,
            HeaderField::EndTime => 14,
        }
    }
}

/// Kind of a recorded step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StampKind {
    Wait,
    Arrive,
    Mma,
    Copy,
    Store,
    Compute,
}

impl StampKind {
    /// Returns the name in a trace.
    pub fn name(self) -> &'static str {
        match self {
            StampKind::Wait => "wait",
            StampKind::Arrive => "arrive",
            StampKind::Mma => "mma",
            StampKind::Copy => "copy",
            StampKind::Store => "store",
            StampKind::Compute => "compute",
        }
    }
}

/// Code that writes records.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StampSite {
    /// Line of the step in the printed schedule.
    pub step: u32,
    /// First and last step of a run of computations.
    pub run: Option<[u32; 2]>,
    pub kind: StampKind,
    /// Number of the op.
    pub op: Option<u32>,
    /// The user's source location.
    pub line: Option<String>,
}

/// The sites of a traced kernel, by their number in a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KernelStamps {
    pub sites: Vec<StampSite>,
    /// Recorders of a CTA. The last one is the producer, if the kernel is warp-specialized.
    pub recorders: u32,
    pub is_specialized: bool,
}

/// A header that is complete.
struct Header<'a> {
    slot: &'a [u32],
    recorder: u32,
}

impl Header<'_> {
    fn field(&self, field: HeaderField) -> u32 {
        self.slot[field.word()]
    }

    fn time(&self, field: HeaderField) -> u64 {
        let word = field.word();
        u64::from(self.slot[word]) | u64::from(self.slot[word + 1]) << 32
    }

    /// Returns the cycles from the start of the CTA to a time of the clock, which wraps.
    fn cycles(&self, clock: u32) -> u32 {
        clock.wrapping_sub(self.field(HeaderField::StartClock))
    }
}

impl KernelStamps {
    /// Returns the 32-bit words of the records of a launch.
    pub fn words(&self) -> usize {
        SLOT_WORDS * SLOTS as usize * self.recorders as usize
    }

    /// Converts the records of a launch to events.
    ///
    /// # Errors
    /// [`Error::Execution`] for a record that no stamp of the kernel writes.
    pub fn decode(&self, kernel: &str, target: &str, words: &[u32]) -> Result<MeasuredTrace> {
        let mut headers = Vec::new();
        for (number, slot) in words.chunks_exact(SLOT_WORDS).enumerate() {
            let header = Header { slot, recorder: number as u32 % self.recorders };
            if header.field(HeaderField::Begun) == 0 {
                continue;
            }
            if header.field(HeaderField::Ended) != 1 {
                return Err(wrong(number, "the tile block has not ended"));
            }
            headers.push((number, header));
        }
        let (mut cycles, mut time) = (0.0, 0.0);
        for (number, header) in &headers {
            let (start, end) = (header.time(HeaderField::StartTime), header.time(HeaderField::EndTime));
            let elapsed = end.checked_sub(start).ok_or_else(|| wrong(*number, "the end precedes the start"))?;
            cycles += f64::from(header.cycles(header.field(HeaderField::EndClock)));
            time += elapsed as f64;
        }
        let rate = if cycles > 0.0 && time > 0.0 { time / cycles } else { 1.0 };
        let first = headers.iter().map(|(_, header)| header.time(HeaderField::StartTime)).min().unwrap_or(0);
        let mut trace =
            MeasuredTrace { kernel: kernel.to_owned(), target: target.to_owned(), ..MeasuredTrace::default() };
        for (number, header) in &headers {
            self.decode_slot(*number, header, (rate, first), &mut trace)?;
        }
        let start = trace.events.iter().map(|event| event.start).min().unwrap_or(0);
        for event in &mut trace.events {
            (event.start, event.end) = (event.start - start, event.end - start);
        }
        // An event precedes those that it contains.
        crate::util::sort::by_key(&mut trace.events, |event| (event.start, Reverse(event.end)));
        Ok(trace)
    }

    fn decode_slot(
        &self,
        number: usize,
        header: &Header<'_>,
        (rate, first): (f64, u64),
        trace: &mut MeasuredTrace,
    ) -> Result<()> {
        let count = header.field(HeaderField::Count);
        trace.dropped += u64::from(count.saturating_sub(EVENTS));
        let origin = (header.time(HeaderField::StartTime) - first) as f64;
        let time = |cycles: u32| (origin + f64::from(cycles) * rate).round() as u64;
        let last = header.cycles(header.field(HeaderField::EndClock));
        let role = match self.is_specialized {
            false => "all",
            true if header.recorder + 1 == self.recorders => "producer",
            true => "consumer",
        };
        let records = header.slot[HEADER_WORDS..].chunks_exact(RECORD_WORDS).take(count as usize);
        for (index, record) in records.enumerate() {
            let site = self.sites.get(record[0] as usize);
            let site = site.ok_or_else(|| wrong(number, "a record without a step"))?;
            let (start, end) = (header.cycles(record[1]), header.cycles(record[2]));
            if record[3] as usize != index || start > end || end > last {
                let found =
                    format!("number {} of {count}, step {}, cycles {start} to {end} of {last}", record[3], site.step);
                return Err(wrong(number, &format!("a record of another launch ({found}) at {index}")));
            }
            trace.events.push(MeasuredEvent {
                block: [0, 1, 2].map(|axis| header.field(HeaderField::Block(axis))),
                multiprocessor: header.field(HeaderField::Multiprocessor),
                role: role.to_owned(),
                warp: header.field(HeaderField::Warp),
                step: site.step,
                run: site.run,
                kind: site.kind.name().to_owned(),
                op: site.op,
                line: site.line.clone(),
                start: time(start),
                end: time(end),
            });
        }
        Ok(())
    }
}

fn wrong(slot: usize, what: &str) -> Error {
    Error::Execution(Diagnostic::new(format!("the records of a traced launch are wrong in slot {slot}: {what}"), None))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stamps() -> KernelStamps {
        let site = |step, kind, op| StampSite { step, run: None, kind, op, line: Some(format!("k.rs:{step}:1")) };
        let sites = vec![site(20, StampKind::Wait, None), site(21, StampKind::Mma, Some(7))];
        KernelStamps { sites, recorders: 2, is_specialized: true }
    }

    /// Writes a slot: its CTA, clock and time at the start and the end, and records of site, start
    /// and end.
    fn write(words: &mut [u32], slot: usize, [start, end]: [(u32, u64); 2], records: &[[u32; 3]]) {
        let slot = &mut words[slot * SLOT_WORDS..][..SLOT_WORDS];
        let mut set = |field: HeaderField, value: u64| slot[field.word()] = value as u32;
        set(HeaderField::Begun, 1);
        set(HeaderField::Block(1), 3);
        set(HeaderField::Multiprocessor, 16);
        set(HeaderField::Warp, 4);
        set(HeaderField::StartClock, start.0.into());
        set(HeaderField::StartTime, start.1);
        set(HeaderField::Ended, 1);
        set(HeaderField::Count, records.len() as u64);
        set(HeaderField::EndClock, end.0.into());
        set(HeaderField::EndTime, end.1);
        let space = slot[HEADER_WORDS..].chunks_exact_mut(RECORD_WORDS);
        for (index, (to, &[site, start, end])) in space.zip(records).enumerate() {
            to.copy_from_slice(&[site, start, end, index as u32]);
        }
    }

    fn recorded() -> Vec<u32> {
        let mut words = vec![0; stamps().words()];
        // Two cycles are one nanosecond, and the clock wraps in the first CTA.
        write(&mut words, 0, [(u32::MAX - 9, 1000), (1990, 2000)], &[[1, 10, 30], [0, 40, 240]]);
        write(&mut words, 5, [(500, 1100), (2500, 2100)], &[[0, 500, 700]]);
        words
    }

    #[test]
    fn records_become_events_in_nanoseconds() {
        let trace = stamps().decode("product", "sm_90a", &recorded()).unwrap();
        let seen: Vec<_> =
            trace.events.iter().map(|event| (&*event.role, &*event.kind, event.start, event.end)).collect();
        // The first event begins 20 cycles after its CTA.
        let want = [("consumer", "mma", 0, 10), ("consumer", "wait", 15, 115), ("producer", "wait", 90, 190)];
        assert_eq!(seen, want);
        let first = &trace.events[0];
        assert_eq!((first.block, first.multiprocessor, first.warp, first.step), ([0, 3, 0], 16, 4, 21));
        assert_eq!((first.op, first.line.as_deref(), trace.dropped), (Some(7), Some("k.rs:21:1"), 0));
    }

    #[test]
    fn records_without_space_are_counted() {
        let mut words = recorded();
        let records: Vec<[u32; 3]> = (0..EVENTS + 3).map(|index| [0, 500 + index, 501 + index]).collect();
        write(&mut words, 5, [(500, 1100), (2500, 2100)], &records);
        let trace = stamps().decode("product", "sm_90a", &words).unwrap();
        assert_eq!((trace.dropped, trace.events.len()), (3, 2 + EVENTS as usize));
    }

    #[test]
    fn planted_wrong_records_are_errors() {
        let record = 5 * SLOT_WORDS + HEADER_WORDS;
        let header = |field: HeaderField| 5 * SLOT_WORDS + field.word();
        let planted = [
            (record, 2, "a record without a step"),
            (record + 1, 701, "a record of another launch"),
            (record + 2, 2501, "a record of another launch"),
            (record + 3, 1, "a record of another launch"),
            (header(HeaderField::Ended), 0, "has not ended"),
            (header(HeaderField::Count), 2, "a record of another launch"),
            (header(HeaderField::EndTime), 1099, "the end precedes the start"),
        ];
        for (at, value, text) in planted {
            let mut words = recorded();
            words[at] = value;
            let error = stamps().decode("product", "sm_90a", &words).unwrap_err().to_string();
            assert!(error.contains("slot 5") && error.contains(text), "{error}");
        }
    }
}
