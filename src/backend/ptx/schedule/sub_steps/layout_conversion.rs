//! Layout conversions: makes values available in the layouts that a step needs.

use super::state::SubStepBuilder;
use crate::backend::ptx::layout_inference::ValueOrigin;
use crate::backend::ptx::schedule::ir::sub_step::{ConversionKind, ConversionPlan, ConvertLayout, SubStep};
use crate::backend::ptx::smem::allocation::shared_type;
use crate::ir::Value;
use crate::layout::{AffinePlan, Conversion, Layout};

/// Minimum number of shared-memory accesses of a conversion with affine addresses, which need no
/// instruction per access.
const MIN_AFFINE_ACCESSES: usize = 16;

impl SubStepBuilder<'_, '_> {
    fn is_available(&self, value: Value, required: &Layout) -> bool {
        let own = self.own_layouts[value.index()].as_ref();
        own.is_some_and(|own| own.is_same(required)) || self.available.find(value, required).is_some()
    }

    /// Makes a value available in a layout.
    pub fn require(&mut self, value: Value, required: &Layout) {
        self.wait_for_value(value);
        if self.info.inference.num_elements(value) == 1 || self.is_available(value, required) {
            return;
        }
        let is_available = |value: Value, layout: &Layout| self.is_available(value, layout);
        for (operand, layout) in self.info.missing_inputs(value, required, &is_available) {
            self.require(operand, &layout);
        }
        match self.info.inference.origin(value) {
            ValueOrigin::Register => {
                let Some(own) = self.own_layouts[value.index()].clone() else { return };
                self.convert_layout(value, &own, required);
            }
            ValueOrigin::View | ValueOrigin::Rematerialized => {
                let Some(id) = self.info.module.defining_op(value) else { return };
                for (operand, layout) in self.info.inputs_in_layout(id, required) {
                    self.require(operand, &layout);
                }
            }
        }
        self.available.push(value, required.clone(), ());
    }

    /// Returns the bytes of shared memory that one conversion or exchange may use.
    pub fn scratch_capacity(&self) -> usize {
        (self.smem.budget() / 2).min(self.smem.free()) as usize
    }

    /// Selects and records the conversion of a value to a layout.
    fn convert_layout(&mut self, value: Value, own: &Layout, required: &Layout) {
        let bits = shared_type(self.info.element_type(value)).storage_bits();
        let capacity = self.scratch_capacity();
        let conversion = match Conversion::plan(own, required, bits, capacity) {
            None => ConversionPlan::Unsupported,
            Some(Conversion::Shared(plan)) => {
                let many = plan.store.accesses.len() + plan.load.accesses.len() >= MIN_AFFINE_ACCESSES;
                let sums = (plan.rounds == 1 && many)
                    .then(|| AffinePlan::new(own, required, bits, capacity & !1023))
                    .flatten();
                sums.map_or(ConversionPlan::Layout(Conversion::Shared(plan)), ConversionPlan::Affine)
            }
            Some(plan) => ConversionPlan::Layout(plan),
        };
        self.record_conversion(value, required, conversion);
    }

    /// Records a layout conversion, with its accesses to shared memory.
    pub fn record_conversion(&mut self, value: Value, required: &Layout, conversion: ConversionPlan) {
        let bytes = match &conversion {
            ConversionPlan::Layout(Conversion::Shared(plan)) => plan.bytes,
            ConversionPlan::Affine(plan) => plan.bytes,
            ConversionPlan::Layout(_) | ConversionPlan::Unsupported => 0,
        };
        let kind = conversion.kind();
        let rounds = kind.rounds();
        let (to, plan) = (self.schedule.layout_id(required), self.schedule.conversions.len() as u32);
        self.schedule.conversions.push(std::rc::Rc::new(conversion));
        self.sub_steps.push(SubStep::ConvertLayout(ConvertLayout { value, to, kind, plan }));
        let buffer = match kind {
            ConversionKind::SmemAffine => self.smem.allocate_for_iteration(bytes as u32),
            ConversionKind::Smem(_) => self.smem.allocate(bytes as u32, 1),
            ConversionKind::Registers | ConversionKind::Shuffle | ConversionKind::Unsupported => None,
        };
        if rounds > 0 && buffer.is_none() {
            self.smem_overflow(bytes as u32);
        }
        for _ in 0..rounds {
            self.smem_write(buffer);
            self.smem_read(&[buffer]);
        }
    }
}
