//! A stage of shared memory: its bytes, and what is happening to them.

use crate::backend::schedule_sim::error::{Fault, broken};
use crate::ir::OpId;

/// What bytes hold that nobody has written.
const POISON: u8 = 0xe7;

/// What a stage holds: whose tiles (of which channel, or which loop), and those of which turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tile {
    pub of: u32,
    pub number: u64,
}

/// A stage.
pub struct Stage {
    size: usize,
    /// None before it is filled for the first time.
    bytes: Vec<u8>,
    tile: Option<Tile>,
    /// Bytes that were announced and have not arrived.
    awaited: i64,
    /// Writes that have been begun.
    under_way: usize,
    /// MMAs that have not landed, of which ping-pong group or data partition.
    readers: Vec<(OpId, usize)>,
    /// How often all that was announced has arrived.
    full_count: u64,
}

impl Stage {
    pub fn new(size: usize) -> Stage {
        Stage { size, bytes: Vec::new(), tile: None, awaited: 0, under_way: 0, readers: Vec::new(), full_count: 0 }
    }

    /// Does it hold nothing that somebody needs?
    pub fn is_free(&self) -> bool {
        self.tile.is_none()
    }

    /// Whom it was filled for.
    pub fn tile(&self) -> Option<Tile> {
        self.tile
    }

    /// Begins to fill it, with so many writes, of which so many bytes are announced.
    ///
    /// # Errors
    /// An MMA still reads it, or it is still written.
    pub fn fill(&mut self, tile: Tile, writes: usize, announced: u32) -> Result<(), Fault> {
        self.is_left_alone(&format!("is filled with {tile:?}"))?;
        self.bytes.resize(self.size, POISON);
        self.bytes.fill(POISON);
        (self.tile, self.under_way, self.awaited) = (Some(tile), writes, announced.into());
        // What is passed on with nothing in it is there at once.
        self.full_count += u64::from(writes == 0 && announced == 0);
        Ok(())
    }

    /// Nobody needs it any more.
    ///
    /// # Errors
    /// Somebody does.
    pub fn free(&mut self) -> Result<(), Fault> {
        self.is_left_alone("is released")?;
        self.bytes.fill(POISON);
        self.tile = None;
        Ok(())
    }

    /// Does no MMA of this ping-pong group or data partition read it any more?
    ///
    /// # Errors
    /// One does.
    pub fn is_left_by(&self, group: usize) -> Result<(), Fault> {
        self.is_read_by(|&other| other == group, "is released")
    }

    fn is_read_by(&self, whom: impl Fn(&usize) -> bool, what: &str) -> Result<(), Fault> {
        if let Some((reader, _)) = self.readers.iter().find(|(_, group)| whom(group)) {
            return Err(broken(format!(
                "a stage of {:?} {what} while op {} still reads it",
                self.tile,
                reader.index()
            )));
        }
        Ok(())
    }

    fn is_left_alone(&self, what: &str) -> Result<(), Fault> {
        self.is_read_by(|_| true, what)?;
        if self.under_way > 0 {
            return Err(broken(format!("a stage of {:?} {what} while it is still written", self.tile)));
        }
        Ok(())
    }

    /// Writes some bytes of one of the writes.
    ///
    /// # Errors
    /// They lie outside.
    pub fn write(&mut self, at: usize, from: &[u8]) -> Result<(), Fault> {
        let (all, end) = (self.bytes.len(), at + from.len());
        let Some(to) = self.bytes.get_mut(at..end) else {
            return Err(broken(format!("bytes {at}..{end} of a stage of {all} are written")));
        };
        to.copy_from_slice(from);
        Ok(())
    }

    /// One of the writes is done, with which so many bytes have arrived.
    pub fn wrote(&mut self, bytes: u32) {
        self.under_way -= 1;
        self.awaited -= i64::from(bytes);
        self.full_count += u64::from(self.under_way == 0 && self.awaited <= 0);
    }

    /// Have all bytes arrived that were announced?
    pub fn is_full(&self) -> bool {
        self.awaited <= 0
    }

    /// How often all that was announced has arrived.
    pub fn full_count(&self) -> u64 {
        self.full_count
    }

    /// An MMA may read it from here on.
    ///
    /// # Errors
    /// It holds other tiles, or not yet these.
    pub fn hold(&mut self, tile: Tile, (reader, group): (OpId, usize)) -> Result<(), Fault> {
        self.holds(tile, reader)?;
        self.readers.push((reader, group));
        Ok(())
    }

    /// The MMA is complete.
    pub fn let_go(&mut self, reader: (OpId, usize)) {
        if let Some(at) = self.readers.iter().position(|&other| other == reader) {
            self.readers.swap_remove(at);
        }
    }

    /// Are these tiles here?
    ///
    /// # Errors
    /// They are not, or not yet.
    pub fn holds(&self, tile: Tile, reader: OpId) -> Result<(), Fault> {
        let reader = reader.index();
        if self.tile != Some(tile) {
            return Err(broken(format!("op {reader} reads {tile:?} in a stage of {:?}", self.tile)));
        }
        if self.under_way > 0 || self.awaited != 0 {
            let awaited = self.awaited;
            return Err(broken(format!(
                "op {reader} reads {tile:?} while it is still written ({awaited} bytes are awaited)"
            )));
        }
        Ok(())
    }

    /// The number that so many bytes are.
    ///
    /// # Errors
    /// They lie outside.
    pub fn read(&self, at: usize, bytes: usize) -> Result<u64, Fault> {
        let all = self.bytes.len();
        let from = self.bytes.get(at..at + bytes);
        let from = from.ok_or_else(|| broken(format!("{bytes} bytes at {at} of a stage of {all} are read")))?;
        Ok(from.iter().rev().fold(0, |number, &byte| number << 8 | u64::from(byte)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ir::Opcode;

    const TILE: Tile = Tile { of: 3, number: 1 };

    fn reader() -> OpId {
        let mut module = crate::ir::Module::new();
        module.add_op(Opcode::Return, &[&[]], vec![], vec![], &[], crate::ir::Loc::UNKNOWN)
    }

    #[test]
    fn a_stage_is_read_as_what_it_was_filled_for() {
        let mut stage = Stage::new(16);
        assert!(stage.is_free() && stage.holds(TILE, reader()).is_err());
        stage.fill(TILE, 2, 8).unwrap();
        stage.write(4, &[1, 2, 3, 4]).unwrap();
        stage.wrote(4);
        assert!(!stage.is_full() && stage.holds(TILE, reader()).is_err() && stage.free().is_err());
        stage.wrote(4);
        assert!(stage.is_full() && stage.holds(Tile { number: 2, ..TILE }, reader()).is_err());
        stage.hold(TILE, (reader(), 1)).unwrap();
        assert!(stage.is_left_by(0).is_ok() && stage.is_left_by(1).is_err());
        assert_eq!((stage.read(4, 2).unwrap(), stage.read(0, 1).unwrap()), (0x0201, POISON.into()));
        assert!(stage.read(14, 4).is_err() && stage.write(14, &[0; 4]).is_err());
        assert!(stage.free().is_err() && stage.fill(TILE, 0, 0).is_err(), "an MMA reads it");
        stage.let_go((reader(), 1));
        stage.free().unwrap();
        assert_eq!(stage.read(4, 1).unwrap(), POISON.into());
    }

    #[test]
    fn fewer_bytes_than_announced_never_arrive_and_more_come_too_late() {
        let mut stage = Stage::new(16);
        stage.fill(TILE, 2, 4).unwrap();
        stage.wrote(4);
        assert!(stage.is_full() && stage.holds(TILE, reader()).is_err());
    }
}
