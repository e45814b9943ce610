//! Operand views: positions of the elements of an operand in a stage, and reads of its tile.

use crate::backend::cpu::SlotContent;
use crate::backend::ptx::{OperandPlan, Panels};
use crate::backend::schedule_sim::error::{Fault, broken};
use crate::dtype::DType;
use crate::layout::SharedLayout;

/// Returns the swizzled address of a byte: address bits select the exchange of 16-byte chunks.
pub fn swizzled(plain: usize, span: usize) -> usize {
    let mask = match span {
        128 => 0x70,
        64 => 0x30,
        32 => 0x10,
        _ => 0,
    };
    plain ^ (plain >> 3 & mask)
}

/// Form of an operand in a stage.
#[derive(Clone, Debug)]
pub enum Form {
    /// In swizzle panels with this number of rows, written by TMA.
    Panels(Panels, i64),
    /// Copied by threads.
    Shared(SharedLayout),
}

/// An operand in a stage.
#[derive(Clone, Debug)]
pub struct Source {
    /// First byte in the stage.
    pub start: usize,
    pub form: Form,
    /// Extents of the tile, and the position of k among its last two dimensions.
    pub shape: Vec<i64>,
    pub k_last: bool,
    /// Element type in the stage.
    pub stored: DType,
    /// Elements are rounded to tf32 at the read.
    pub rounds: bool,
}

impl Source {
    /// Returns an operand in panels with this number of rows.
    ///
    /// # Errors
    /// The plan has no panels.
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

    /// Returns an operand that threads copy.
    pub fn in_order(plan: &OperandPlan, start: usize, (shape, k_last): (&[i64], bool), stored: DType) -> Source {
        let rounds = stored != plan.dtype;
        let form = Form::Shared(plan.shared.clone());
        Source { start, form, shape: shape.to_vec(), k_last, stored, rounds }
    }

    /// Returns the tile. `read` reads bytes of the stage.
    ///
    /// # Errors
    /// Errors of `read`.
    pub fn tile(&self, read: &mut dyn FnMut(usize, usize) -> Result<u64, Fault>) -> Result<SlotContent, Fault> {
        let bytes = self.stored.storage_bits() as usize / 8;
        let count = self.shape.iter().product::<i64>() as usize;
        let place: Box<dyn Fn(usize) -> usize> = match &self.form {
            Form::Shared(shared) => Box::new(|flat| self.start + shared.offset(flat as u32) as usize),
            &Form::Panels(panels, rows) => {
                let columns = self.shape[self.shape.len() - 1] as usize;
                let (span, rows) = (panels.swizzle_bytes as usize, rows as usize);
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
