//! State that the partitions of a CTA share: stages, and asynchronous operations in flight.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};

use super::async_copy::CpAsyncCopies;
use super::operand_view::Source;
use super::stage::{Stage, Tile};
use super::tma_box;
use super::tma_pipeline::{Pipelines, StageSlot};
use crate::backend::cpu::SlotContent;
use crate::backend::ptx::schedule::OrderPoint;
use crate::backend::ptx::tensor_map::TensorMap;
use crate::backend::schedule_sim::error::{Fault, broken};
use crate::backend::schedule_sim::kernel::Kernel;
use crate::ir::OpId;

/// Location of a stage.
#[derive(Clone, Copy, Debug, Hash)]
pub enum Where {
    Pipeline(StageSlot),
    /// Stage of the multistage copies with this number.
    CpAsync(usize, usize, Tile),
}

/// An operand of an MMA.
#[derive(Clone)]
pub enum Operand {
    Content(SlotContent),
    At(Where, Source),
}

/// A TMA box in flight.
#[derive(Clone)]
struct Arriving<'a> {
    slot: StageSlot,
    map: &'a TensorMap,
    coordinates: Vec<i64>,
    at: usize,
}

/// Asynchronous MMAs that have not read their operands.
#[derive(Clone)]
struct Reading {
    mma_group: u64,
    reader: OpId,
    /// Ping-pong group, data partition or warp group that has issued them.
    group: usize,
    operands: Vec<[Operand; 2]>,
    /// Stages of their operands.
    stages: Vec<Where>,
    done: bool,
}

fn hash_of(content: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    content.hash(&mut hasher);
    hasher.finish()
}

impl Reading {
    fn fingerprint(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        (self.mma_group, self.reader, self.group, &self.stages, self.done).hash(&mut hasher);
        for operand in self.operands.iter().flatten() {
            match operand {
                Operand::Content(content) => content.fingerprint(&mut hasher),
                Operand::At(at, source) => (at, source.start).hash(&mut hasher),
            }
        }
        hasher.finish()
    }
}

/// Shared state of the partitions.
#[derive(Clone)]
pub struct Shared<'a> {
    pub kernel: &'a Kernel<'a>,
    pub pipelines: Pipelines,
    /// Number of completed critical sections, by set of barriers.
    pub order_counts: [u64; OrderPoint::BARRIER_SETS],
    /// Number of arrivals of each consumer group at barriers.
    pub barrier_counts: Vec<u64>,
    copies: BTreeMap<usize, CpAsyncCopies>,
    boxes: Vec<Arriving<'a>>,
    readings: Vec<Reading>,
    /// Number of copies and MMA groups so far, by consumer group.
    counts: Vec<u64>,
}

impl<'a> Shared<'a> {
    pub fn new(kernel: &'a Kernel<'a>) -> Shared<'a> {
        let group_counts = [kernel.consumer_groups(), kernel.sharing_groups()];
        let pipelines = kernel.warp_spec().map(|warp_spec| Pipelines::new(warp_spec, group_counts)).unwrap_or_default();
        Shared {
            kernel,
            pipelines,
            order_counts: [0; OrderPoint::BARRIER_SETS],
            barrier_counts: vec![0; kernel.consumer_groups()],
            copies: BTreeMap::new(),
            boxes: Vec::new(),
            readings: Vec::new(),
            counts: vec![0; kernel.consumer_groups()],
        }
    }

    /// Returns a unique number. It does not depend on the progress of other groups.
    pub fn number(&mut self, group: usize) -> u64 {
        self.counts[group] += 1;
        self.counts[group] * self.counts.len() as u64 + group as u64
    }

    /// Hashes the state.
    pub fn fingerprint(&self, hasher: &mut impl Hasher) {
        (&self.pipelines, self.order_counts, &self.barrier_counts, &self.counts).hash(hasher);
        for (number, copies) in &self.copies {
            number.hash(hasher);
            copies.fingerprint(hasher);
        }
        // Boxes and MMAs in flight are sets: the order of their issue by several groups is not
        // relevant.
        let boxes = self.boxes.iter().map(|arriving| hash_of(&(arriving.slot, &arriving.coordinates, arriving.at)));
        let mut sets: Vec<u64> = boxes.collect();
        sets.extend(self.readings.iter().map(Reading::fingerprint));
        sets.sort_unstable();
        sets.hash(hasher);
    }

    /// Returns the number of asynchronous operations in flight.
    pub fn events(&self) -> usize {
        let copies: usize = self.copies.values().map(|copies| copies.issued.len()).sum();
        self.boxes.len() + copies + self.unread().count()
    }

    fn unread(&self) -> impl Iterator<Item = &Reading> {
        self.readings.iter().filter(|reading| !reading.done)
    }

    /// Completes one of these operations.
    ///
    /// # Errors
    /// It is not permitted at this time.
    pub fn happen(&mut self, which: usize) -> Result<(), Fault> {
        let Some(mut which) = which.checked_sub(self.boxes.len()) else { return self.arrive(which) };
        for copies in self.copies.values_mut() {
            match which.checked_sub(copies.issued.len()) {
                Some(rest) => which = rest,
                None => return copies.finish(which),
            }
        }
        let mma_group = self.unread().nth(which).map(|reading| reading.mma_group);
        mma_group.map_or(Ok(()), |mma_group| self.read_operands(mma_group))
    }

    // TMA boxes.

    /// Issues the TMA loads of the next stage of a channel: for each load the coordinates of its
    /// boxes.
    ///
    /// # Errors
    /// The stage is in use.
    pub fn produce(&mut self, channel: u32, coordinates: Vec<Vec<Vec<i64>>>) -> Result<(), Fault> {
        let plan = self.kernel.channel(channel)?;
        let slot = self.pipelines.next_to_produce(plan.pipeline, channel)?;
        let count = coordinates.iter().map(Vec::len).sum();
        self.pipelines.produce(slot, count, plan.bytes())?;
        for (load, all) in plan.loads.iter().zip(coordinates) {
            for (part, coordinates) in load.boxes.iter().zip(all) {
                let at = (load.smem_offset + part.smem_offset) as usize;
                self.boxes.push(Arriving { slot, map: &load.map, coordinates, at });
            }
        }
        Ok(())
    }

    fn arrive(&mut self, which: usize) -> Result<(), Fault> {
        let Arriving { slot: place, map, coordinates, at } = self.boxes.remove(which);
        let launch = (self.kernel.memory, self.kernel.params);
        let stage = self.pipelines.stage(place);
        let bytes = tma_box::copy(map, &coordinates, launch, (stage, at))?;
        stage.wrote(bytes);
        Ok(())
    }

    // Multistage copies.

    pub fn begin_cp_async(&mut self, group: usize, copies: CpAsyncCopies) -> usize {
        let number = self.number(group) as usize;
        self.copies.insert(number, copies);
        number
    }

    /// Returns the multistage copies with this number.
    ///
    /// # Errors
    /// Their loop has ended.
    pub fn copies(&mut self, number: usize) -> Result<&mut CpAsyncCopies, Fault> {
        self.copies.get_mut(&number).ok_or_else(|| broken("copies of a loop that has ended"))
    }

    /// # Errors
    /// A stage is in use.
    pub fn end_cp_async(&mut self, number: usize) -> Result<(), Fault> {
        self.copies.remove(&number).map_or(Ok(()), |mut copies| copies.end())
    }

    // Operands.

    fn stage(&mut self, at: Where) -> Result<(&mut Stage, Tile), Fault> {
        match at {
            Where::Pipeline(slot) => Ok((self.pipelines.stage(slot), slot.tile)),
            Where::CpAsync(number, stage, tile) => Ok((self.copies(number)?.stage(stage), tile)),
        }
    }

    /// Returns the tile of an operand.
    ///
    /// # Errors
    /// Its stage has other tiles.
    pub fn read(&mut self, operand: &Operand, reader: OpId) -> Result<SlotContent, Fault> {
        match operand {
            Operand::Content(content) => Ok(content.clone()),
            Operand::At(at, source) => {
                let (stage, tile) = self.stage(*at)?;
                stage.holds(tile, reader)?;
                source.tile(&mut |at, bytes| stage.read(at, bytes))
            }
        }
    }

    /// Issues MMAs. They read their operands at any time before their completion.
    ///
    /// # Errors
    /// A stage has other tiles.
    pub fn issue_mmas(
        &mut self,
        mma_group: u64,
        (reader, group): (OpId, usize),
        operands: Vec<[Operand; 2]>,
    ) -> Result<(), Fault> {
        let slot = |operand: &Operand| if let &Operand::At(at, _) = operand { Some(at) } else { None };
        let places: Vec<Where> = operands.iter().flatten().filter_map(slot).collect();
        for &at in &places {
            let (stage, tile) = self.stage(at)?;
            stage.hold(tile, (reader, group))?;
        }
        self.readings.push(Reading { mma_group, reader, group, operands, stages: places, done: false });
        Ok(())
    }

    fn read_operands(&mut self, mma_group: u64) -> Result<(), Fault> {
        let Some(at) = self.readings.iter().position(|reading| reading.mma_group == mma_group && !reading.done) else {
            return Ok(());
        };
        let (reader, operands) = (self.readings[at].reader, self.readings[at].operands.clone());
        let mut tiles = Vec::new();
        for [left, right] in &operands {
            tiles.push([Operand::Content(self.read(left, reader)?), Operand::Content(self.read(right, reader)?)]);
        }
        let reading = &mut self.readings[at];
        (reading.operands, reading.done) = (tiles, true);
        Ok(())
    }

    /// Returns the operands of completed MMAs. Their stages are no longer read.
    ///
    /// # Errors
    /// A stage has other tiles.
    pub fn complete_mmas(&mut self, mma_group: u64) -> Result<Vec<[SlotContent; 2]>, Fault> {
        self.read_operands(mma_group)?;
        let Some(at) = self.readings.iter().position(|reading| reading.mma_group == mma_group) else {
            return Err(broken("a wait for MMAs that were not issued"));
        };
        let Reading { reader, group, operands, stages: places, .. } = self.readings.remove(at);
        for at in places {
            self.stage(at)?.0.let_go((reader, group));
        }
        let content_of = |operand: Operand| match operand {
            Operand::Content(content) => content,
            Operand::At(..) => SlotContent::default(),
        };
        Ok(operands.into_iter().map(|[a, b]| [content_of(a), content_of(b)]).collect())
    }
}
