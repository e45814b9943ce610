//! Where the elements of an operand stand in a stage, and what the tile is that stands there.

use crate::backend::cpu::SlotContent;
use crate::backend::ptx::{OperandPlan, Panels};
use crate::backend::schedule_sim::error::{Fault, broken};
use crate::dtype::DType;
use crate::layout::SharedLayout;

/// The first byte of a row of chunks, and which bits of the address its chunks are swapped by.
pub fn swizzled(plain: usize, span: usize) -> usize {
    let mask = match span {
        128 => 0x70,
        64 => 0x30,
        32 => 0x10,
        _ => 0,
    };
    plain ^ (plain >> 3 & mask)
}

/// How an operand stands in a stage.
#[derive(Clone, Debug)]
pub enum Form {
    /// In panels of so many rows, which a copy engine has filled.
    Panels(Panels, i64),
    /// As threads have copied it.
    Shared(SharedLayout),
}

/// An operand in a stage.
#[derive(Clone, Debug)]
pub struct Source {
    /// Where it begins in the stage.
    pub start: usize,
    pub form: Form,
    /// Extents of its tile, and the place of k among its last two dimensions.
    pub shape: Vec<i64>,
    pub k_last: bool,
    /// Elements in the stage.
    pub stored: DType,
    /// They have still to be rounded to tf32.
    pub rounds: bool,
}

impl Source {
    /// In panels of so many rows.
    ///
    /// # Errors
    /// The plan knows no panels.
    pub fn in_panels(
        plan: &OperandPlan,
        rows: i64,
        start: usize,
        (shape, k_last): (&[i64], bool),
    ) -> Result<Source, Fault> {
        let panels = plan.panels.ok_or_else(|| broken("an operand is streamed that has no panels"))?;
        let form = Form::Panels(panels, rows);
        Ok(Source { start, form, shape: shape.to_vec(), k_last, stored: plan.dtype, rounds: false })
    }

    /// As threads copy it.
    pub fn in_order(plan: &OperandPlan, start: usize, (shape, k_last): (&[i64], bool), stored: DType) -> Source {
        let rounds = stored != plan.dtype;
        let form = Form::Shared(plan.shared.clone());
        Source { start, form, shape: shape.to_vec(), k_last, stored, rounds }
    }

    /// The tile, by whoever reads bytes of the stage.
    ///
    /// # Errors
    /// Those of reading.
    pub fn tile(&self, read: &mut dyn FnMut(usize, usize) -> Result<u64, Fault>) -> Result<SlotContent, Fault> {
        let bytes = self.stored.storage_bits() as usize / 8;
        let count = self.shape.iter().product::<i64>() as usize;
        let place: Box<dyn Fn(usize) -> usize> = match &self.form {
            Form::Shared(shared) => Box::new(|flat| self.start + shared.offset(flat as u32) as usize),
            &Form::Panels(panels, rows) => {
                let columns = self.shape[self.shape.len() - 1] as usize;
                let (span, rows) = (panels.span as usize, rows as usize);
                let along_last = panels.along_k == self.k_last;
                Box::new(move |flat| {
                    let (row, column) = (flat / columns, flat % columns);
                    let (contiguous, row) = if along_last { (column * bytes, row) } else { (row * bytes, column) };
                    let panel = contiguous / span * rows * span;
                    swizzled(self.start + panel + row * span + contiguous % span, span)
                })
            }
        };
        let bits: Vec<u64> = (0..count).map(|flat| read(place(flat), bytes)).collect::<Result<_, _>>()?;
        let tile = SlotContent::of_bits(self.stored, bits.into_iter());
        Ok(if self.rounds { tile.as_tf32() } else { tile })
    }
}
