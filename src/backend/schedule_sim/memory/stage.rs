//! Stage of shared memory: its bytes, writers and readers.

use crate::backend::schedule_sim::error::{Fault, broken};
use crate::ir::OpId;

/// Value of unwritten bytes.
const POISON: u8 = 0xe7;

/// Identity of the tiles in a stage: their channel or loop, and their iteration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Tile {
    pub of: u32,
    pub number: u64,
}

/// State of a stage.
#[derive(Clone, Hash)]
pub struct Stage {
    size: usize,
    /// Empty before the first write.
    bytes: Vec<u8>,
    tile: Option<Tile>,
    /// Expected bytes that have not arrived.
    awaited: i64,
    /// Number of writes in flight.
    under_way: usize,
    /// MMAs in flight that read it, each with its ping-pong group or data partition.
    readers: Vec<(OpId, usize)>,
    /// Number of completed phases.
    full_count: u64,
}

impl Stage {
    pub fn new(size: usize) -> Stage {
        Stage { size, bytes: Vec::new(), tile: None, awaited: 0, under_way: 0, readers: Vec::new(), full_count: 0 }
    }

    /// Returns true if the stage can be filled.
    pub fn is_free(&self) -> bool {
        self.tile.is_none()
    }

    /// Returns the identity of its tiles.
    pub fn tile(&self) -> Option<Tile> {
        self.tile
    }

    /// Begins to fill the stage with `writes` writes, of which `announced` bytes are expected.
    ///
    /// # Errors
    /// An MMA reads it, or it is being written.
    pub fn fill(&mut self, tile: Tile, writes: usize, announced: u32) -> Result<(), Fault> {
        self.is_unused(&format!("is filled with {tile:?}"))?;
        self.bytes.resize(self.size, POISON);
        self.bytes.fill(POISON);
        (self.tile, self.under_way, self.awaited) = (Some(tile), writes, announced.into());
        // A stage without bytes is full at once.
        self.full_count += u64::from(writes == 0 && announced == 0);
        Ok(())
    }

    /// Releases the stage.
    ///
    /// # Errors
    /// The stage is in use.
    pub fn free(&mut self) -> Result<(), Fault> {
        self.is_unused("is released")?;
        self.bytes.fill(POISON);
        self.tile = None;
        Ok(())
    }

    /// Checks that no MMA of this ping-pong group or data partition reads the stage.
    ///
    /// # Errors
    /// One reads it.
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

    fn is_unused(&self, what: &str) -> Result<(), Fault> {
        self.is_read_by(|_| true, what)?;
        if self.under_way > 0 {
            return Err(broken(format!("a stage of {:?} {what} while it is still written", self.tile)));
        }
        Ok(())
    }

    /// Writes some bytes of one of the writes.
    ///
    /// # Errors
    /// They are outside of the stage.
    pub fn write(&mut self, at: usize, from: &[u8]) -> Result<(), Fault> {
        let (all, end) = (self.bytes.len(), at + from.len());
        let Some(to) = self.bytes.get_mut(at..end) else {
            return Err(broken(format!("bytes {at}..{end} of a stage of {all} are written")));
        };
        to.copy_from_slice(from);
        Ok(())
    }

    /// Completes one of the writes, with which `bytes` bytes have arrived.
    pub fn wrote(&mut self, bytes: u32) {
        self.under_way -= 1;
        self.awaited -= i64::from(bytes);
        self.full_count += u64::from(self.under_way == 0 && self.awaited <= 0);
    }

    /// Returns true if all expected bytes have arrived.
    pub fn is_full(&self) -> bool {
        self.awaited <= 0
    }

    /// Returns the number of completed phases.
    pub fn full_count(&self) -> u64 {
        self.full_count
    }

    /// Registers an MMA that may read the stage from now on.
    ///
    /// # Errors
    /// It has other tiles, or is not full.
    pub fn hold(&mut self, tile: Tile, (reader, group): (OpId, usize)) -> Result<(), Fault> {
        self.holds(tile, reader)?;
        self.readers.push((reader, group));
        Ok(())
    }

    /// Unregisters a completed MMA.
    pub fn let_go(&mut self, reader: (OpId, usize)) {
        if let Some(at) = self.readers.iter().position(|&other| other == reader) {
            self.readers.swap_remove(at);
        }
    }

    /// Checks that the stage has these tiles.
    ///
    /// # Errors
    /// It has other tiles, or is not full.
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

    /// Returns the number in `bytes` bytes.
    ///
    /// # Errors
    /// They are outside of the stage.
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
    fn a_stage_is_read_in_its_produced_form() {
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
        assert_eq!(stage.read(4, 1).unwrap(), u64::from(POISON));
    }

    #[test]
    fn stages_reject_fewer_and_more_bytes_than_expected() {
        let mut stage = Stage::new(16);
        stage.fill(TILE, 2, 4).unwrap();
        stage.wrote(4);
        assert!(stage.is_full() && stage.holds(TILE, reader()).is_err());
    }
}
