//! Data partitioning: consumer groups that each compute a share of the rows.
//!
//! All groups use the same stages: a stage is free when each warp of each group has released it. A
//! load of partitioned rows has the boxes of all groups, one after another in the stage. Other
//! shared memory is only used as staging buffers per warp. Data partitions have no barriers,
//! neither with each other nor among their warps.

use crate::backend::ptx::schedule::KernelInfo;
use crate::backend::ptx::schedule::ir::pipelines::{TmaBox, TmaLoad};
use crate::backend::ptx::schedule::ir::sub_step::SubStep;
use crate::ir::{OpId, Opcode, Value};
use crate::util::collect::CollectVec as _;

impl KernelInfo<'_> {
    /// Returns the dimension of an access along which the tiles of data partitions are adjacent,
    /// with the index of the first one. Without an index it is 0.
    pub fn partitioned_index(&self, access: OpId) -> Option<(usize, Option<Value>)> {
        let made_by = |value: Value, code: Opcode| {
            self.module.defining_op(value).map(|id| self.module.op(id)).filter(|op| op.code == code)
        };
        let is_partition_index = |value: Value| made_by(value, Opcode::DataPartitionId).is_some();
        let index = self.module.op(access).operand_group("index");
        (self.data_partitions > 1).then(|| {
            index.iter().enumerate().find_map(|(axis, &index)| {
                match made_by(index, Opcode::AddI).map(|sum| &sum.operands[..]) {
                    Some(&[first, data_partition]) | Some(&[data_partition, first])
                        if is_partition_index(data_partition) =>
                    {
                        Some((axis, Some(first)))
                    }
                    _ => is_partition_index(index).then_some((axis, None)),
                }
            })
        })?
    }

    /// Returns the dimension of an access along which the tiles of data partitions are adjacent.
    pub fn partitioned_axis(&self, access: OpId) -> Option<usize> {
        self.partitioned_index(access).map(|(axis, _)| axis)
    }

    /// Returns the load of one data partition as a load for all: the boxes of each, if the rows are
    /// partitioned. The partitioned dimension may be along the rows of panels or across them.
    pub fn for_all_partitions(&self, one: TmaLoad) -> TmaLoad {
        let Some(axis) = self.partitioned_axis(one.load) else { return one };
        let tile = self.module.shape(self.module.op(one.load).results[0]);
        let (height, bytes, data_partitions) = (tile[axis], one.bytes, self.data_partitions);
        let boxes_of_partition = |data_partition: u32| {
            one.boxes.iter().map(move |part| {
                let mut coord = part.coord.clone();
                coord[axis] += i64::from(data_partition) * height;
                TmaBox { coord, smem_offset: part.smem_offset + data_partition * bytes }
            })
        };
        let boxes = (0..data_partitions).flat_map(boxes_of_partition).collect_vec();
        TmaLoad { boxes, bytes: data_partitions * bytes, partitions: data_partitions, ..one }
    }
}

impl SubStep {
    /// Returns true if the sub-step synchronizes the threads of a partition or uses shared memory
    /// that they share.
    pub fn uses_shared_smem(&self) -> bool {
        matches!(
            self,
            SubStep::SmemWrite(_)
                | SubStep::SmemRead(_)
                | SubStep::StoredOperand { .. }
                | SubStep::Barrier { .. }
                | SubStep::SmemOverflow { .. }
                | SubStep::Split { .. }
        )
    }
}
