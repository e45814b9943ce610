//! The order of work on one allocation: the waits of a stream before its use of the allocation.
//!
//! An allocation records the stream of its last write and the streams that have read it since. A
//! read is ordered after the last write. A write is ordered after the last write and every later
//! read. A stream waits for the present work of another one, and not for work that is queued there
//! later. A reader that writes therefore waits for all streams again. Only reads may rely on an
//! earlier wait.
//!
//! The parts of a split allocation are written at the same time, also by two threads: the work of
//! a part may be queued after the use of the other part is recorded. No stream is then forgotten,
//! and each use waits for all other streams, until the next write of the whole allocation.
//!
//! The code is generic over streams: the tests at the end run all short sequences of uses on
//! streams that count. It does not depend on memory or the driver.

use std::sync::atomic::{AtomicPtr, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A stream of work, with the operations that its order needs.
pub trait Queue {
    /// The error of a wait.
    type Error;

    /// Makes later work of `self` start after the present work of `other`.
    fn wait_for(&self, other: &Self) -> Result<(), Self::Error>;

    /// Returns true if work may still be queued. A closed queue may be opened again. All work of
    /// earlier calls of [`Order::before_use`] is queued before it is closed.
    fn is_open(&self) -> bool;
}

/// The streams that have used an allocation.
pub struct Order<Q> {
    /// The stream that may read and write without a wait, or null. It is alive because it is the
    /// writer.
    sole: AtomicPtr<Q>,
    uses: Mutex<Uses<Q>>,
}

struct Uses<Q> {
    /// The stream of the last write. Its own reads are not recorded.
    writer: Arc<Q>,
    /// Other streams that have waited for the last write and have read since. Includes the streams
    /// that have written parts.
    readers: Vec<Arc<Q>>,
    /// True if parts have been written since the last write of the whole.
    parts: bool,
}

/// The kind of a use of an allocation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// A read.
    Read,
    /// A write, with all of the allocation borrowed uniquely.
    Write,
    /// A write of a part. Other threads may use other parts at the same time.
    WritePart,
}

impl Access {
    /// Returns the access of an argument that writes or reads, to a part or the whole.
    #[inline]
    pub fn of(writes: bool, part: bool) -> Access {
        match (writes, part) {
            (false, _) => Access::Read,
            (true, false) => Access::Write,
            (true, true) => Access::WritePart,
        }
    }
}

impl<Q: Queue> Order<Q> {
    /// Makes the order of memory that this stream has allocated.
    pub fn new(stream: Arc<Q>) -> Order<Q> {
        let sole = AtomicPtr::new(Arc::as_ptr(&stream).cast_mut());
        Order { sole, uses: Mutex::new(Uses { writer: stream, readers: Vec::new(), parts: false }) }
    }

    /// Makes a stream wait for conflicting uses of other streams, and records its next use. The
    /// work must be queued before the next call for conflicting work, except for work on parts. The
    /// borrows of arrays ensure this.
    ///
    /// # Errors
    /// Those of waiting. After an error the use is not recorded.
    #[inline]
    pub fn before_use(&self, stream: &Arc<Q>, access: Access) -> Result<(), Q::Error> {
        if std::ptr::eq(self.sole.load(Ordering::Acquire), Arc::as_ptr(stream)) {
            return Ok(());
        }
        let mut uses = self.uses();
        match access {
            Access::Write => self.before_write(&mut uses, stream),
            Access::Read if !uses.parts => self.before_read(&mut uses, stream),
            Access::Read | Access::WritePart => self.before_use_of_part(&mut uses, stream),
        }
    }

    /// Permits concurrent uses of parts. No use relies on [`Order::sole`] from then on.
    pub fn split(&self) {
        let mut uses = self.uses();
        uses.parts = true;
        self.sole.store(std::ptr::null_mut(), Ordering::Release);
    }

    #[cold]
    fn before_write(&self, uses: &mut Uses<Q>, stream: &Arc<Q>) -> Result<(), Q::Error> {
        uses.others(stream).try_for_each(|other| stream.wait_for(other))?;
        uses.readers.clear();
        uses.parts = false;
        uses.writer = stream.clone();
        self.sole.store(Arc::as_ptr(stream).cast_mut(), Ordering::Release);
        Ok(())
    }

    #[cold]
    fn before_read(&self, uses: &mut Uses<Q>, stream: &Arc<Q>) -> Result<(), Q::Error> {
        // These streams have waited for the last write: their later work is ordered after it.
        if Arc::ptr_eq(&uses.writer, stream) || uses.readers.iter().any(|reader| Arc::ptr_eq(reader, stream)) {
            return Ok(());
        }
        stream.wait_for(&uses.writer)?;
        uses.join_closed()?;
        self.sole.store(std::ptr::null_mut(), Ordering::Release);
        uses.readers.push(stream.clone());
        Ok(())
    }

    #[cold]
    fn before_use_of_part(&self, uses: &mut Uses<Q>, stream: &Arc<Q>) -> Result<(), Q::Error> {
        uses.others(stream).try_for_each(|other| stream.wait_for(other))?;
        uses.join_closed()?;
        if !Arc::ptr_eq(&uses.writer, stream) && !uses.readers.iter().any(|reader| Arc::ptr_eq(reader, stream)) {
            uses.readers.push(stream.clone());
        }
        Ok(())
    }

    /// Returns the stream of the last write, whose later work is ordered after that write.
    pub fn writer(&self) -> Arc<Q> {
        self.uses().writer.clone()
    }

    /// Returns a stream that is ordered after every use so far, for the release of the memory.
    ///
    /// # Errors
    /// Those of waiting.
    pub fn last(&mut self) -> Result<&Arc<Q>, Q::Error> {
        let uses = self.uses.get_mut().unwrap_or_else(PoisonError::into_inner);
        uses.readers.iter().try_for_each(|reader| uses.writer.wait_for(reader))?;
        Ok(&uses.writer)
    }

    fn uses(&self) -> MutexGuard<'_, Uses<Q>> {
        self.uses.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<Q: Queue> Uses<Q> {
    /// Returns every stream with work on this memory except one.
    fn others<'a>(&'a self, stream: &'a Arc<Q>) -> impl Iterator<Item = &'a Arc<Q>> {
        std::iter::once(&self.writer).chain(&self.readers).filter(move |other| !Arc::ptr_eq(other, stream))
    }

    /// Replaces all closed readers by one of them, which waits for the others. The list of readers
    /// therefore does not grow with short-lived streams. None of these waits can delay later work.
    fn join_closed(&mut self) -> Result<(), Q::Error> {
        let Some(first) = self.readers.iter().position(|reader| !reader.is_open()) else { return Ok(()) };
        let mut at = first + 1;
        while at < self.readers.len() {
            if self.readers[at].is_open() {
                at += 1;
            } else {
                self.readers[first].wait_for(&self.readers[at])?;
                self.readers.swap_remove(at);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::util::test_sample::one_in;
    use std::cell::{Cell, RefCell};
    use std::convert::Infallible;

    /// A stream that counts, for each stream, the work that is ordered before its own next work.
    struct Counting {
        id: usize,
        done_before: RefCell<Vec<u32>>,
        open: Cell<bool>,
        waits: Cell<u32>,
    }

    /// A piece of work: its stream, and its number there, from 1 on.
    type Work = (usize, u32);

    impl Counting {
        fn new(id: usize, streams: usize) -> Arc<Counting> {
            let done_before = RefCell::new(vec![0; streams]);
            #[allow(clippy::arc_with_non_send_sync)] // One thread; the order has shared streams.
            Arc::new(Counting { id, done_before, open: Cell::new(true), waits: Cell::new(0) })
        }

        fn queue(&self) -> Work {
            let place = &mut self.done_before.borrow_mut()[self.id];
            *place += 1;
            (self.id, *place)
        }

        fn comes_after(&self, (id, place): Work) -> bool {
            self.done_before.borrow()[id] >= place
        }
    }

    impl Queue for Counting {
        type Error = Infallible;

        fn wait_for(&self, other: &Counting) -> Result<(), Infallible> {
            self.waits.set(self.waits.get() + 1);
            let theirs = other.done_before.borrow();
            self.done_before.borrow_mut().iter_mut().zip(&*theirs).for_each(|(mine, &its)| *mine = its.max(*mine));
            Ok(())
        }

        fn is_open(&self) -> bool {
            self.open.get()
        }
    }

    /// A step of a sequence.
    #[derive(Clone, Copy, Debug)]
    enum Step {
        Use {
            memory: usize,
            stream: usize,
            writes: bool,
        },
        /// Reads one memory and writes the other one, on the stream of its last write.
        Copy {
            to: usize,
        },
        /// Work without a use of the memories.
        Other {
            stream: usize,
        },
        /// Drops the last handle of the stream. Its number then belongs to a new stream.
        Replace {
            stream: usize,
        },
    }

    /// A memory and the work on it that must be ordered.
    struct Used {
        order: Order<Counting>,
        write: Option<Work>,
        reads: Vec<Work>,
    }

    impl Used {
        /// Makes a use, and returns true if it is ordered after the conflicting ones.
        fn is_ordered_before(&self, stream: &Arc<Counting>, writes: bool) -> bool {
            let Ok(()) = self.order.before_use(stream, Access::of(writes, false));
            self.write.iter().chain(self.reads.iter().filter(|_| writes)).all(|&work| stream.comes_after(work))
        }

        fn note(&mut self, work: Work, writes: bool) {
            if writes {
                self.reads.clear();
                self.write = Some(work);
            } else {
                self.reads.push(work);
            }
        }
    }

    /// Returns true if every use of two memories is ordered after the conflicting ones, and their
    /// release after all uses.
    fn is_ordered(steps: &[Step]) -> bool {
        let mut count = 3;
        let most = count + steps.len();
        let mut streams: Vec<_> = (0..count).map(|id| Counting::new(id, most)).collect();
        let new = |_| Used { order: Order::new(streams[0].clone()), write: None, reads: Vec::new() };
        let mut memories = [0, 1].map(new);
        for &step in steps {
            match step {
                Step::Use { memory, stream, writes } => {
                    let (memory, stream) = (&mut memories[memory], &streams[stream]);
                    if !memory.is_ordered_before(stream, writes) {
                        return false;
                    }
                    memory.note(stream.queue(), writes);
                }
                Step::Copy { to } => {
                    let stream = memories[to].order.writer();
                    let was_open = stream.open.replace(true);
                    if !memories[to].is_ordered_before(&stream, true)
                        || !memories[1 - to].is_ordered_before(&stream, false)
                    {
                        return false;
                    }
                    let work = stream.queue();
                    stream.open.set(was_open);
                    memories[to].note(work, true);
                    memories[1 - to].note(work, false);
                }
                Step::Other { stream } => _ = streams[stream].queue(),
                Step::Replace { stream } => {
                    streams[stream].open.set(false);
                    streams[stream] = Counting::new(count, most);
                    count += 1;
                }
            }
        }
        memories.iter_mut().all(|Used { order, write, reads }| {
            let Ok(last) = order.last();
            write.iter().chain(&*reads).all(|&work| last.comes_after(work))
        })
    }

    /// Asserts that all sequences of up to this many steps are ordered.
    #[track_caller]
    fn assert_ordered(kinds: &[Step], longest: u32) {
        for length in 0..=longest {
            let mut steps = vec![kinds[0]; length as usize];
            for code in 0..kinds.len().pow(length) {
                let mut rest = code;
                for step in &mut steps {
                    *step = kinds[rest % kinds.len()];
                    rest /= kinds.len();
                }
                assert!(is_ordered(&steps), "{steps:?}");
            }
        }
    }

    /// Returns the uses of one memory on this many streams.
    fn uses(memory: usize, streams: usize) -> Vec<Step> {
        let both = |stream| [false, true].map(|writes| Step::Use { memory, stream, writes });
        (0..streams).flat_map(both).collect()
    }

    #[test]
    fn every_short_sequence_of_uses_is_ordered() {
        assert_ordered(&uses(0, 3), 8 - one_in(2) as u32);
        let others = [0, 1].map(|stream| Step::Other { stream });
        let ends = [0, 1, 2].map(|stream| Step::Replace { stream });
        assert_ordered(&[&uses(0, 3), &others[..], &ends].concat(), 6 - one_in(2) as u32);
    }

    #[test]
    fn every_short_sequence_of_copies_is_ordered() {
        let copies = [0, 1].map(|to| Step::Copy { to });
        let ends = [0, 1].map(|stream| Step::Replace { stream });
        assert_ordered(&[&uses(0, 2), &uses(1, 2), &copies[..], &ends].concat(), 6 - one_in(2) as u32);
    }

    #[test]
    fn streams_wait_only_where_it_matters() {
        let streams = [0, 1].map(|id| Counting::new(id, 2));
        let order = Order::new(streams[0].clone());
        let waits = |stream: usize, writes| {
            let before = streams[stream].waits.get();
            let Ok(()) = order.before_use(&streams[stream], Access::of(writes, false));
            streams[stream].waits.get() - before
        };
        assert_eq!([waits(0, true), waits(0, false), waits(0, true)], [0; 3], "alone");
        assert_eq!([waits(1, false), waits(1, false), waits(0, false)], [1, 0, 0], "reads of both");
        assert_eq!([waits(1, true), waits(1, true), waits(1, false)], [1, 0, 0], "a reader writes");
        assert_eq!(waits(0, true), 1);
    }

    #[test]
    fn parts_written_at_the_same_time_are_not_forgotten() {
        // Each sequence of two uses of the whole (stream and access) after uses of both parts, on
        // the streams 1 and 2. The work of the parts is queued after both uses are recorded.
        let accesses = [Access::Read, Access::Write, Access::WritePart];
        for code in 0..81 {
            let after = [code % 9, code / 9].map(|code| (code % 3, accesses[code / 3]));
            let streams = [0, 1, 2].map(|id| Counting::new(id, 3));
            let mut order = Order::new(streams[0].clone());
            order.split();
            for stream in &streams[1..] {
                let Ok(()) = order.before_use(stream, Access::WritePart);
            }
            let work = [streams[1].queue(), streams[2].queue()];
            for (stream, access) in after {
                let Ok(()) = order.before_use(&streams[stream], access);
                assert!(work.iter().all(|&work| streams[stream].comes_after(work)), "{after:?}");
                streams[stream].queue();
            }
            let Ok(last) = order.last();
            assert!(work.iter().all(|&work| last.comes_after(work)), "{after:?}");
        }
    }

    #[test]
    fn dropped_streams_are_not_kept() {
        let writer = Counting::new(0, 1001);
        let mut order = Order::new(writer.clone());
        let mut reads = Vec::new();
        for id in 1..=1000 {
            let stream = Counting::new(id, 1001);
            let Ok(()) = order.before_use(&stream, Access::Read);
            reads.push(stream.queue());
            stream.open.set(false);
        }
        assert!(order.uses().readers.len() <= 2);
        let Ok(last) = order.last();
        assert!(reads.into_iter().all(|work| last.comes_after(work)));
    }
}
