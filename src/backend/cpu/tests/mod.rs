//! Tests of the interpreter on handwritten modules, against independent references.

mod access;
mod arithmetic;
mod control;
mod conversion;
mod matrix;
mod movement;

use super::{Memory, Program, RunOptions};
use crate::dtype::DType;
use crate::error::{Error, Location, Result};
use crate::ir::*;
use crate::types::float_codec;

/// Pseudo-random words.
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        let x = (self.0 ^ (self.0 >> 29)).wrapping_mul(0xbf58476d1ce4e5b9);
        x ^ (x >> 32)
    }

    /// Returns a uniform number in [-1, 1).
    pub fn unit(&mut self) -> f64 {
        self.next() as f64 / 2f64.powi(63) - 1.0
    }

    /// Returns patterns of a float type: special values, subnormals, random bits, and numbers of
    /// moderate size.
    pub fn floats(&mut self, dtype: DType, count: usize) -> Vec<u64> {
        let mask = u64::MAX >> (64 - dtype.bits());
        let nearest = |v: f64| float_codec::encode(dtype, v, Rounding::NearestEven);
        let specials = [0.0, -0.0, 1.0, -1.0, f64::INFINITY, f64::NEG_INFINITY, f64::NAN].map(nearest);
        let one = |i: usize| match i {
            i if i < specials.len() => specials[i],
            i if i % 5 == 0 => self.next() & 7 | (self.next() & 1) << (dtype.bits() - 1),
            i if i % 5 == 1 => self.next() & mask,
            _ => nearest(self.unit() * 8.0),
        };
        let mut all: Vec<u64> = (0..count).map(one).collect();
        for i in (1..count).rev() {
            all.swap(i, self.next() as usize % (i + 1));
        }
        all
    }

    pub fn ints(&mut self, dtype: DType, count: usize) -> Vec<u64> {
        let mask = u64::MAX >> (64 - dtype.bits());
        let edges = [0, 1, mask, mask >> 1, (mask >> 1) + 1];
        (0..count).map(|i| if i % 3 == 0 { edges[i / 3 % 5] & mask } else { self.next() & mask }).collect()
    }
}

/// Creates a tile of given patterns.
pub fn tile(b: &mut Builder, dtype: DType, shape: &[i64], bits: &[u64]) -> Value {
    let ty = b.module.intern(Type::tile(dtype, shape));
    b.simple(Opcode::Constant, &[], vec![Attr::Value(ConstData::Dense(bits.into()))], ty)
}

pub fn int(b: &mut Builder, value: i64) -> Value {
    b.splat(DType::I32, value as u32 as u64, &[])
}

/// Creates an op on operands of one group each, whose result is a tile of numbers.
pub fn op(b: &mut Builder, code: Opcode, operands: &[Value], attrs: Vec<Attr>, dtype: DType, shape: &[i64]) -> Value {
    let ty = b.module.intern(Type::tile(dtype, shape));
    b.simple(code, operands, attrs, ty)
}

/// Creates a view of the `extents` × `strides` array at `base`, partitioned by `make`.
pub fn view(
    b: &mut Builder,
    base: Value,
    dtype: DType,
    extents: &[i64],
    strides: &[i64],
    make: impl FnOnce(TypeId) -> Type,
) -> Value {
    let some = |list: &[i64]| list.iter().map(|&n| Some(n)).collect::<Vec<_>>();
    let tensor = Type::TensorView { elem: dtype, shape: some(extents), strides: some(strides), ptr_attr: None };
    let tensor = b.module.intern(tensor);
    let id = b.op(Opcode::MakeTensorView, &[&[base], &[], &[]], vec![], vec![], &[tensor]);
    let array = b.module.op(id).results[0];
    let ty = make(tensor);
    let code = match ty {
        Type::PartitionView { .. } => Opcode::MakePartitionView,
        Type::StridedView { .. } => Opcode::MakeStridedView,
        _ => Opcode::MakeGatherScatterView,
    };
    let ty = b.module.intern(ty);
    b.simple(code, &[array], vec![], ty)
}

pub fn partition(b: &mut Builder, base: Value, dtype: DType, extents: &[i64], strides: &[i64], tile: &[i32]) -> Value {
    let dim_map = (0..tile.len() as i32).collect();
    let tile = tile.to_vec();
    view(b, base, dtype, extents, strides, |view| Type::PartitionView { tile, view, dim_map, padding: None })
}

pub fn load(b: &mut Builder, view: Value, index: &[Value], dtype: DType, shape: &[i64]) -> Value {
    let types = [Type::tile(dtype, shape), Type::Token].map(|t| b.module.intern(t));
    let attrs = vec![Attr::MemOrder(MemOrder::Weak)];
    let id = b.op(Opcode::LoadView, &[&[view], index, &[]], attrs, vec![], &types);
    b.module.op(id).results[0]
}

pub fn store(b: &mut Builder, tile: Value, view: Value, index: &[Value]) {
    let token = b.module.intern(Type::Token);
    let attrs = vec![Attr::MemOrder(MemOrder::Weak)];
    b.op(Opcode::StoreView, &[&[tile], &[view], index, &[]], attrs, vec![], &[token]);
}

pub fn finish(b: &mut Builder) {
    b.op(Opcode::Return, &[&[]], vec![], vec![], &[]);
}

/// Host memory of an array of a kernel, with an alignment of eight bytes.
pub struct Buffer {
    words: Vec<u64>,
    bytes: usize,
}

impl Buffer {
    pub fn zeros(dtype: DType, count: usize) -> Buffer {
        let bytes = dtype.bytes_of(count).unwrap();
        Buffer { words: vec![0; bytes.div_ceil(8)], bytes }
    }

    pub fn new(dtype: DType, patterns: &[u64]) -> Buffer {
        let mut buffer = Buffer::zeros(dtype, patterns.len());
        let bits = dtype.storage_bits() as usize;
        for (i, pattern) in patterns.iter().enumerate() {
            buffer.words[i * bits / 64] |= pattern << (i * bits % 64);
        }
        buffer
    }

    pub fn get(&self, dtype: DType, index: usize) -> u64 {
        let bits = dtype.storage_bits() as usize;
        self.words[index * bits / 64] >> (index * bits % 64) & (u64::MAX >> (64 - bits))
    }

    pub fn all(&self, dtype: DType, count: usize) -> Vec<u64> {
        (0..count).map(|i| self.get(dtype, i)).collect()
    }

    pub fn address(&mut self) -> u64 {
        self.words.as_mut_ptr() as u64
    }
}

/// Runs a module on writable buffers.
pub fn launch(module: &Module, grid: [u32; 3], buffers: &mut [&mut Buffer]) -> Result<()> {
    let mut memory = Memory::new();
    let mut params = Vec::new();
    for buffer in buffers {
        params.push(buffer.address());
        // SAFETY: the buffer outlives the run and no other code accesses it.
        unsafe { memory.add(buffer.words.as_mut_ptr().cast(), buffer.bytes, true) };
    }
    Program::compile(module)?.run(grid, &params, &memory, &RunOptions::default())
}

/// Returns the patterns of the tiles that `build` creates, one list per tile.
pub fn try_eval(build: impl FnOnce(&mut Builder) -> Vec<Value>) -> Result<Vec<Vec<u64>>> {
    let mut b = Builder::new();
    b.begin_entry("test", &[]);
    b.set_location(&Location { file: "test.rs".into(), line: 1, column: 2 });
    let values = build(&mut b);
    let mut outputs = Vec::new();
    for value in values {
        let (dtype, count) = (b.module.dtype(value), b.module.shape(value).iter().product::<i64>());
        let pointer = b.module.intern(Type::ptr(dtype));
        let body = b.open_blocks()[0];
        let base = b.module.add_block_arg(body, pointer);
        let flat = op(&mut b, Opcode::Reshape, &[value], vec![], dtype, &[count]);
        let view = partition(&mut b, base, dtype, &[count], &[1], &[count as i32]);
        let zero = int(&mut b, 0);
        store(&mut b, flat, view, &[zero]);
        outputs.push((dtype, count as usize));
    }
    finish(&mut b);
    let mut buffers: Vec<Buffer> = outputs.iter().map(|&(dtype, count)| Buffer::zeros(dtype, count)).collect();
    launch(&b.module, [1; 3], &mut buffers.iter_mut().collect::<Vec<_>>())?;
    Ok(outputs.iter().zip(&buffers).map(|(&(dtype, count), buffer)| buffer.all(dtype, count)).collect())
}

/// As [`try_eval`], for one tile; panics on an error.
pub fn eval(build: impl FnOnce(&mut Builder) -> Value) -> Vec<u64> {
    try_eval(|b| vec![build(b)]).expect("runs").remove(0)
}

/// Returns the message of an execution error.
pub fn fault(result: Result<impl std::fmt::Debug>) -> String {
    match result {
        Err(Error::Execution(diagnostic)) => diagnostic.to_string(),
        other => panic!("an execution error, got {other:?}"),
    }
}

pub fn same_float(dtype: DType, a: u64, b: u64) -> bool {
    a == b || float_codec::decode(dtype, a).is_nan() && float_codec::decode(dtype, b).is_nan()
}
