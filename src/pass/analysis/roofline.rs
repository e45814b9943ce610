//! Roofline work of a launch: minimum memory traffic and number of floating-point operations,
//! counted on the IR.
//!
//! 1. Tile blocks are executed symbolically with the grid and parameters of the launch: the integer
//!    scalars are computed, so that trip counts are exact. One tile block represents all that have
//!    its positions along the axes on which control flow depends. If there are too many, a sample
//!    is executed.
//! 2. Loaded, stored and multiplied elements are counted. Each array counts at most once for
//!    reading and once for writing; further accesses are assumed to hit the cache.
//! 3. Control flow that depends on data is estimated, and so is a sample of tile blocks with
//!    different work. [`Work::is_guess`] reports both.
//!
//! Requires a verified module. Independent of back ends and devices.

use crate::util::collect::CollectVec as _;
use std::collections::BTreeMap;

use crate::dtype::DType;
use crate::ir::op_table::Class;
use crate::ir::{BlockId, ConstData, Elem, Entry, Module, Op, OpId, Opcode, Type, Value};
use crate::pass::transform::canonicalize::int;

/// Maximum number of tile blocks in the sample.
const SAMPLE: u64 = 512;

/// Maximum number of loop iterations that are executed one by one. If a loop has more, this number
/// is spread evenly over them.
const FOLLOWED: u64 = 1024;

/// Minimum work of a launch.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Work {
    /// Bytes read from memory.
    pub read_bytes: f64,
    /// Bytes written to memory.
    pub written_bytes: f64,
    /// Operations of matrix products, by the element type of the factors.
    pub products: Vec<(DType, f64)>,
    /// Floating-point operations outside of matrix products.
    pub elementwise: f64,
    /// Control flow depends on data, or on positions of too many tile blocks, so the numbers are an
    /// estimate.
    pub is_guess: bool,
}

impl Work {
    /// Counts the work of a launch over `grid`. Each word of `params` has the bits of one parameter
    /// in its low bits.
    pub fn new(module: &Module, entry: &Entry, grid: [u32; 3], params: &[u64]) -> Work {
        let axes = control_axes(module, entry);
        // Blocks at the start of the other axes represent all positions along them.
        let executed: [u64; 3] = [0, 1, 2].map(|axis| if axes[axis] { grid[axis].into() } else { 1 });
        let all: u64 = grid.iter().map(|&n| u64::from(n)).product();
        let blocks: u64 = executed.iter().product();
        let sample = blocks.min(SAMPLE);
        let mut counter = Counter {
            module,
            grid,
            block: [0; 3],
            known: vec![None; module.num_values()],
            arrays: BTreeMap::new(),
            products: BTreeMap::new(),
            elementwise: 0.0,
            is_guess: false,
        };
        for (&arg, &word) in module.block(entry.body).args.iter().zip(params) {
            counter.known[arg.index()] = Some(word);
        }
        let mut different = false;
        let mut first = None;
        for index in 0..if all == 0 { 0 } else { sample } {
            let linear = index * blocks / sample + scattered(index, blocks / sample);
            let [x, y, _] = executed;
            counter.block = [(linear % x) as u32, (linear / x % y) as u32, (linear / x / y) as u32];
            let before = counter.total();
            counter.run(entry.body, all as f64 / sample as f64);
            let work = counter.total() - before;
            different |= (work - *first.get_or_insert(work)).abs() > 1e-6 * work.abs();
        }
        counter.is_guess |= sample < blocks && different;
        let sum = |bytes: fn(&Array) -> f64| counter.arrays.values().map(|a| bytes(a).min(a.extent)).sum();
        Work {
            read_bytes: sum(|array| array.read),
            written_bytes: sum(|array| array.written),
            products: counter.products.into_iter().collect_vec(),
            elementwise: counter.elementwise,
            is_guess: counter.is_guess,
        }
    }

    /// Returns the number of bytes read or written.
    pub fn bytes(&self) -> f64 {
        self.read_bytes + self.written_bytes
    }

    /// Returns the number of operations of all matrix products.
    pub fn product_flops(&self) -> f64 {
        self.products.iter().map(|(_, flops)| flops).sum()
    }
}

/// Returns the axes of the grid on which bounds of loops and conditions depend.
fn control_axes(module: &Module, entry: &Entry) -> [bool; 3] {
    let mut of_values = vec![0u8; module.num_values()];
    let (mut control, mut changed) = (0u8, true);
    // Values that a loop carries depend on later ones of its body.
    while changed {
        changed = false;
        let mut set = |of_values: &mut Vec<u8>, value: Value, axes: u8| {
            changed |= of_values[value.index()] | axes != of_values[value.index()];
            of_values[value.index()] |= axes;
        };
        module.walk(entry.body, &mut |id| {
            let op = module.op(id);
            let mut axes = op.operands.iter().fold(0, |axes, value| axes | of_values[value.index()]);
            // Results of a region pass through its terminators.
            for &region in &op.regions {
                for &last in module.block(region).ops.last().into_iter() {
                    let passed = &module.op(last).operands;
                    axes |= passed.iter().fold(0, |axes, value| axes | of_values[value.index()]);
                }
                module.block(region).args.iter().for_each(|&arg| set(&mut of_values, arg, axes));
            }
            if op.code.is_control_flow() {
                let decisive = match op.code {
                    Opcode::If => &op.operands[..1],
                    Opcode::For => &op.operands[..3],
                    _ => &op.operands[..],
                };
                control |= decisive.iter().fold(0, |axes, value| axes | of_values[value.index()]);
            }
            for (axis, &result) in op.results.iter().enumerate() {
                let own = if op.code == Opcode::GetTileBlockId { 1 << axis } else { 0 };
                set(&mut of_values, result, axes | own);
            }
        });
    }
    [0, 1, 2].map(|axis| control >> axis & 1 == 1)
}

/// Returns a number below `range` for a member of a sample: different ones for neighbours, evenly
/// spread over the sample, so that no period of the grid agrees with the sample.
fn scattered(index: u64, range: u64) -> u64 {
    let fraction = (index as u32).reverse_bits();
    (u64::from(fraction) * range) >> 32
}

/// Traffic of one array.
struct Array {
    /// Bytes of the array, infinity if unknown.
    extent: f64,
    read: f64,
    written: f64,
}

struct Counter<'m> {
    module: &'m Module,
    grid: [u32; 3],
    block: [u32; 3],
    /// Bits of each integer scalar whose value is computed.
    known: Vec<Option<u64>>,
    /// By the value from which the address of the array is derived.
    arrays: BTreeMap<Value, Array>,
    products: BTreeMap<DType, f64>,
    elementwise: f64,
    is_guess: bool,
}

impl Counter<'_> {
    /// Returns a number that differs for different work.
    fn total(&self) -> f64 {
        let traffic: f64 = self.arrays.values().map(|array| array.read + array.written).sum();
        self.products.values().sum::<f64>() + self.elementwise + traffic
    }

    /// Executes a block, with its work multiplied by `weight`. Returns the operands of its
    /// terminator.
    fn run(&mut self, block: BlockId, weight: f64) -> Vec<Option<u64>> {
        let module = self.module;
        for &id in &module.block(block).ops {
            let op = module.op(id);
            match op.code {
                Opcode::For => self.for_loop(id, weight),
                Opcode::Loop => {
                    self.is_guess = true;
                    self.run(op.regions[0], weight);
                }
                Opcode::If => self.branches(id, weight),
                Opcode::Yield | Opcode::Continue | Opcode::Break | Opcode::Return => {
                    return op.operands.iter().map(|v| self.known[v.index()]).collect_vec();
                }
                _ => self.op(op, weight),
            }
        }
        Vec::new()
    }

    fn for_loop(&mut self, id: OpId, weight: f64) {
        let module = self.module;
        let op = module.op(id);
        let body = op.regions[0];
        let args = &module.block(body).args;
        let bounds: Option<Vec<i64>> = (0..3).map(|group| self.signed(op.group(group)[0])).collect();
        let trips = match bounds.as_deref() {
            Some(&[from, to, step]) if step > 0 => {
                (to - from).max(0) as u64 / step as u64 + u64::from((to - from).max(0) % step != 0)
            }
            _ => {
                self.is_guess = true;
                1
            }
        };
        let mut carried: Vec<Option<u64>> = op.group(3).iter().map(|v| self.known[v.index()]).collect_vec();
        let branches = module.block(body).ops.iter().any(|&inner| {
            !module.op(inner).regions.is_empty()
                && module.op(inner).code != Opcode::Reduce
                && module.op(inner).code != Opcode::Scan
        });
        let followed = trips.min(if branches { FOLLOWED } else { 1 });
        for index in 0..followed {
            let trip = index * trips / followed;
            let counter = bounds.as_deref().map(|bounds| (bounds[0] + trip as i64 * bounds[2]) as u64);
            self.known[args[0].index()] = counter;
            for (&arg, &value) in args[1..].iter().zip(&carried) {
                self.known[arg.index()] = value;
            }
            carried = self.run(body, weight * trips as f64 / followed as f64);
        }
        if followed < trips {
            carried.iter_mut().for_each(|value| *value = None);
        }
        for (&result, value) in op.results.iter().zip(carried) {
            self.known[result.index()] = value;
        }
    }

    fn branches(&mut self, id: OpId, weight: f64) {
        let op = self.module.op(id);
        let results = match self.known[op.operands[0].index()] {
            Some(bits) => self.run(op.regions[usize::from(bits & 1 == 0)], weight),
            None => {
                self.is_guess = true;
                for &region in &op.regions {
                    self.run(region, weight / op.regions.len() as f64);
                }
                Vec::new()
            }
        };
        for (index, &result) in op.results.iter().enumerate() {
            self.known[result.index()] = results.get(index).copied().flatten();
        }
    }

    fn op(&mut self, op: &Op, weight: f64) {
        let module = self.module;
        match op.code {
            Opcode::GetTileBlockId => self.set_all(op, self.block),
            Opcode::GetNumTileBlocks => self.set_all(op, self.grid),
            Opcode::GetTensorShape | Opcode::GetIndexSpaceShape => {
                let counts = self.view_shape(op.operands[0]);
                for (&result, count) in op.results.iter().zip(counts) {
                    self.known[result.index()] = count;
                }
            }
            Opcode::LoadView | Opcode::LoadPtr => self.touch(op.operands[0], op.results[0], weight, false),
            Opcode::StoreView => self.touch(op.group(1)[0], op.group(0)[0], weight, true),
            Opcode::StorePtr => self.touch(op.group(0)[0], op.group(1)[0], weight, true),
            Opcode::AtomicRedView => self.touch(op.group(0)[0], op.group(2)[0], weight, true),
            code if code.is_mma() => {
                // 2 m n k operations. k is the last axis of the left operand.
                let (acc, _) = self.extent(op.results[0]);
                let k = module.shape(op.operands[0]).last().copied().unwrap_or(1) as f64;
                *self.products.entry(module.dtype(op.operands[0])).or_default() += 2.0 * acc * k * weight;
            }
            Opcode::Reduce => self.elementwise += self.extent(op.operands[0]).0 * weight,
            _ => self.arithmetic(op, weight),
        }
    }

    /// Computes integer scalars, and counts the operations of floats.
    fn arithmetic(&mut self, op: &Op, weight: f64) {
        let module = self.module;
        let &[result] = op.results.as_slice() else { return };
        let Some((Elem::Num(dtype), shape)) = module.ty(result).as_tile() else { return };
        let count = shape.iter().product::<i64>() as f64;
        let each = match op.code.spec().class {
            Class::FloatUnary | Class::FloatBinary => 1.0,
            Class::FloatTernary => 2.0,
            _ => 0.0,
        };
        self.elementwise += each * count * weight;
        if count == 1.0 && dtype.is_int() {
            self.known[result.index()] = self.scalar(op, dtype);
        }
    }

    fn scalar(&self, op: &Op, to: DType) -> Option<u64> {
        let operand = |index: usize| self.known[op.operands[index].index()];
        match op.code {
            Opcode::Constant => match op.const_data()? {
                ConstData::Splat(bits) => Some(*bits),
                ConstData::Dense(all) => all.first().copied(),
            },
            code if code.has_operand_elements() => operand(0),
            Opcode::Select => operand(if operand(0)? & 1 == 1 { 1 } else { 2 }),
            _ => match op.operands.len() {
                1 => int::unary(op, self.integer(op.operands[0])?, to, operand(0)?),
                2 => int::binary(op, self.integer(op.operands[0])?, operand(0)?, operand(1)?),
                _ => None,
            },
        }
    }

    fn integer(&self, value: Value) -> Option<DType> {
        self.module.ty(value).as_tile().and_then(|(elem, _)| elem.dtype()).filter(|dtype| dtype.is_int())
    }

    fn signed(&self, value: Value) -> Option<i64> {
        let unused = 64 - self.integer(value)?.bits();
        self.known[value.index()].map(|bits| ((bits << unused) as i64) >> unused)
    }

    fn set_all(&mut self, op: &Op, numbers: [u32; 3]) {
        for (&result, number) in op.results.iter().zip(numbers) {
            self.known[result.index()] = Some(number.into());
        }
    }

    /// Returns the number of elements or tiles along each dimension of a view.
    fn view_shape(&self, view: Value) -> Vec<Option<u64>> {
        let extents = self.extents(view);
        match self.module.ty(view) {
            Type::PartitionView { tile, dim_map, .. } => {
                let along =
                    |(&tile, &dim): (&i32, &i32)| Some(extents.get(dim as usize).copied()??.div_ceil(tile as u64));
                tile.iter().zip(dim_map).map(along).collect_vec()
            }
            _ => extents,
        }
    }

    /// Returns the extents of the array of a view.
    fn extents(&self, view: Value) -> Vec<Option<u64>> {
        let Some(op) = self.array(view) else { return Vec::new() };
        let Type::TensorView { shape, .. } = self.module.ty(op.results[0]) else { return Vec::new() };
        let mut dynamic = op.group(1).iter();
        let mut extent = |constant: &Option<i64>| match constant {
            Some(constant) => Some(*constant as u64),
            None => dynamic.next().and_then(|&v| self.signed(v)).map(|n| n.max(0) as u64),
        };
        shape.iter().map(&mut extent).collect_vec()
    }

    /// Returns the op that describes the array of a view.
    fn array(&self, mut view: Value) -> Option<&Op> {
        loop {
            let op = self.module.op(self.module.defining_op(view)?);
            match op.code {
                Opcode::MakeTensorView => return Some(op),
                code if code.is_view() || code == Opcode::Assume => view = op.operands[0],
                _ => return None,
            }
        }
    }

    fn touch(&mut self, view: Value, tile: Value, weight: f64, writes: bool) {
        let (_, bytes) = self.extent(tile);
        let (root, extent) = match self.array(view) {
            Some(op) => {
                let bits =
                    self.module.ty(tile).as_tile().and_then(|(elem, _)| elem.dtype()).map_or(8, DType::storage_bits);
                let elements = self.extents(view).into_iter().try_fold(1.0, |all, extent| Some(all * extent? as f64));
                (self.origin(op.group(0)[0]), elements.map_or(f64::INFINITY, |n: f64| n * f64::from(bits) / 8.0))
            }
            None => (self.origin(view), f64::INFINITY),
        };
        let array = self.arrays.entry(root).or_insert(Array { extent, read: 0.0, written: 0.0 });
        *(if writes { &mut array.written } else { &mut array.read }) += bytes * weight;
    }

    /// Returns the value from which an address is computed.
    fn origin(&self, mut address: Value) -> Value {
        while let Some(id) = self.module.defining_op(address) {
            let op = self.module.op(id);
            match op.operands.first() {
                Some(&first) => address = first,
                None => break,
            }
        }
        address
    }

    /// Returns the number of elements and of bytes of a tile.
    fn extent(&self, tile: Value) -> (f64, f64) {
        let Some((elem, shape)) = self.module.ty(tile).as_tile() else { return (0.0, 0.0) };
        let count = shape.iter().product::<i64>() as f64;
        (count, count * f64::from(elem.dtype().map_or(64, DType::storage_bits)) / 8.0)
    }
}
