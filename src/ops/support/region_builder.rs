//! Builder of regions: opens blocks with arguments, closes them with terminators, and records the
//! op around them.

use crate::dtype::DType;
use crate::element::Element;
use crate::ir::op_table::Effect;
use crate::ir::{Attr, BlockId, Opcode, TypeId, Value};
use crate::sealed::Sealed;
use crate::tile::{Handle, Place, Region, Scalar, Source, Tile, ValueHandle, record};
use crate::util::collect::CollectVec as _;

/// Maximum depth of nested bodies.
const MAX_NESTED: usize = 200;
/// Number of deeper bodies after which the kernel panics.
const MAX_DEEPER_BODIES: u32 = 1000;

/// The condition of a branch or loop: `Scalar<bool>`, a one-element `Tile<bool, N>`, or a host
/// `bool`, which is decided while tracing.
///
/// This trait is sealed.
///
/// ```
/// # use cutlet::doctest::*;
/// fn steps(y: ArrayMut<i32, 1>, verbose: bool) {
///     ct::if_then(verbose, || ct::println!("decided while tracing"));
///     ct::if_then(ct::bid(0).eq(1), || y.store_scalar(0, 1));
///     ct::if_then(ct::full([2], ct::bid(0)).eq(2).all(0), || y.store_scalar(1, 2));
/// }
///
/// let mut y = ct::Device::cpu().zeros([2])?;
/// ct::launch(steps, 3, (&mut y, ct::Constant(false)))?;
/// assert_eq!(y.to_vec()?, [1, 2]);
/// # Ok::<(), ct::Error>(())
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a condition",
    note = "a condition is one bool: reduce a mask with `.any(..)` or `.all(..)`"
)]
pub trait Condition: Sealed + Copy {
    #[doc(hidden)]
    fn source(self) -> Source;
    #[doc(hidden)]
    fn known(self) -> Option<bool> {
        None
    }
}

impl Condition for Scalar<bool> {
    fn source(self) -> Source {
        Source::Value(self.raw())
    }
}
impl<const R: usize> Condition for Tile<bool, R> {
    fn source(self) -> Source {
        Source::Value(self.raw())
    }
}
impl Condition for bool {
    fn source(self) -> Source {
        Source::Literal(self.to_bits())
    }
    fn known(self) -> Option<bool> {
        Some(self)
    }
}

/// A loop or branch being recorded.
#[derive(Clone, Copy)]
pub(crate) struct Body {
    pub place: Place,
    pub name: &'static str,
    pub what: &'static str,
}

impl Body {
    fn region(self) -> Region {
        Region { what: self.what, place: self.place, scalar_only: false }
    }

    /// Opens a block whose arguments are `prefix` and then one for each value of the state, and
    /// returns the arguments. Arguments of poisoned values are poison.
    pub fn open(self, prefix: &[DType], state: &[ValueHandle]) -> Vec<ValueHandle> {
        record(|t| {
            let mut types: Vec<TypeId> =
                prefix.iter().map(|&d| t.builder.module.intern(crate::ir::Type::scalar(d))).collect_vec();
            let usable: Vec<Option<Value>> = state.iter().map(|&raw| t.check_usable(raw, self.place)).collect_vec();
            for &raw in state {
                let ty = t.type_of(raw);
                types.push(t.builder.module.intern(ty));
            }
            let args = t.open(self.region(), &types);
            let tainted: Vec<Value> =
                args[prefix.len()..].iter().zip(&usable).filter(|(_, u)| u.is_none()).map(|(&a, _)| a).collect_vec();
            t.taint(&tainted);
            args.into_iter().map(|a| t.raw(a)).collect_vec()
        })
    }

    /// Ends the innermost open block with `code` and these values, which must have the types of
    /// `expected`. `None` after a problem.
    pub fn close(self, code: Opcode, values: &[ValueHandle], expected: &[ValueHandle]) -> Option<BlockId> {
        record(|t| {
            t.at(self.place);
            let usable: Vec<Option<Value>> = values.iter().map(|&raw| t.check_usable(raw, self.place)).collect_vec();
            let mut fits = values.len() == expected.len();
            if !fits {
                let message = format!(
                    "`{}`: the state has {} values, and the body returns {}",
                    self.name,
                    expected.len(),
                    values.len()
                );
                t.report(self.place, message, &["a `Vec` in the state keeps its length"]);
            }
            for (value, &want) in usable.iter().zip(expected) {
                let Some(value) = *value else { continue };
                let (have, want) = (t.builder.module.shape(value).to_vec(), t.shape(want));
                if have != want {
                    fits = false;
                    let message = format!("{} gives a tile of shape {have:?} where {want:?} is expected", self.what);
                    t.report_at_definition(
                        self.place,
                        message,
                        value,
                        "values keep their shape through loops and branches",
                    );
                }
            }
            let values: Option<Vec<Value>> = usable.into_iter().collect();
            if let Some(values) = &values {
                t.emit(code, &[values], vec![], vec![], &[]);
            }
            let block = t.close();
            (fits && values.is_some()).then_some(block)
        })
    }

    /// Records the op around finished blocks; results have the types of `state`. Poison after a
    /// problem.
    pub fn finish(
        self,
        code: Opcode,
        operands: &[Option<Value>],
        init: Option<&[ValueHandle]>,
        blocks: Option<Vec<BlockId>>,
        types: &[ValueHandle],
        attrs: Vec<Attr>,
    ) -> Vec<ValueHandle> {
        record(|t| {
            t.at(self.place);
            let operands: Option<Vec<Value>> = operands.iter().copied().collect();
            let init: Option<Vec<Value>> =
                init.unwrap_or_default().iter().map(|&raw| t.check_usable(raw, self.place)).collect();
            let types: Vec<crate::ir::Type> = types.iter().map(|&raw| t.type_of(raw)).collect_vec();
            let admitted = t.admits(self.place, Effect::Region, 0);
            let (Some(operands), Some(init), Some(blocks), true) = (operands, init, blocks, admitted) else {
                return types.into_iter().map(|ty| t.poison(ty)).collect_vec();
            };
            let ids: Vec<TypeId> = types.into_iter().map(|ty| t.builder.module.intern(ty)).collect_vec();
            let mut groups: Vec<&[Value]> = operands.chunks(1).collect_vec();
            if code != Opcode::If {
                groups.push(&init);
            }
            let results = t.emit(code, &groups, attrs, blocks, &ids);
            results.into_iter().map(|v| t.raw(v)).collect_vec()
        })
    }
}

impl Body {
    /// Opens the body of a loop; returns its block and arguments. `None` if bodies are nested too
    /// deeply.
    pub fn open_loop(self, prefix: &[DType], state: &[ValueHandle]) -> Option<(BlockId, Vec<ValueHandle>)> {
        if self.is_too_deep() {
            return None;
        }
        let args = self.open(prefix, state);
        let block = record(|t| {
            let block = t.builder.block();
            t.begin_loop(block, self.place, state.to_vec());
            block
        });
        Some((block, args))
    }

    /// Returns poison of the types of values.
    pub fn poison_like(self, values: &[ValueHandle]) -> Vec<ValueHandle> {
        record(|t| {
            let types: Vec<_> = values.iter().map(|&raw| t.type_of(raw)).collect_vec();
            types.into_iter().map(|ty| t.poison(ty)).collect_vec()
        })
    }

    /// Reports a loop whose condition cannot change: the body, this block, returns its state
    /// unchanged, reads no memory, and has no further exit.
    pub fn refuse_endless(self, block: BlockId, args: &[ValueHandle], next: &[ValueHandle]) {
        record(|t| {
            let same = args.len() == next.len() && args.iter().zip(next).all(|(a, b)| a.is_same(*b));
            let module = &t.builder.module;
            let (mut reads, mut exits) = (false, 0);
            module.walk(block, &mut |id| {
                let op = module.op(id);
                reads |= matches!(op.code.spec().effect, Effect::Read | Effect::ReadWrite);
                exits += u32::from(matches!(op.code, Opcode::Break | Opcode::Return));
            });
            if same && !reads && exits <= 1 {
                let message = format!("`{}`: the body gives the state back as it is: the loop never ends", self.name);
                let way_out = "return the next state from the body; what the condition asks for has to change";
                t.report(self.place, message, &[way_out]);
            }
        });
    }

    /// Returns true, and reports it, if bodies are nested too deeply to trace this one.
    ///
    /// # Panics
    /// If the kernel continues to nest bodies after the report.
    pub fn is_too_deep(self) -> bool {
        let (depth, asked) = record(|t| (t.builder.open_blocks().len(), t.nest_too_deeply(MAX_NESTED)));
        if depth <= MAX_NESTED {
            return false;
        }
        let message = format!("`{}`: bodies are nested deeper than {MAX_NESTED}", self.name);
        assert!(asked < MAX_DEEPER_BODIES, "{message}, and the kernel calls itself again and again");
        let way_out = "a function that calls itself under a condition which only the running kernel knows is traced for \
                       ever: write a loop";
        record(|t| t.report(self.place, message, &[way_out]));
        true
    }

    /// Returns a condition as a scalar; `None` after a problem.
    pub fn condition(self, source: Source) -> Option<Value> {
        let place = self.place;
        record(|t| {
            t.at(place);
            if let Source::Value(raw) = source
                && t.shape(raw).iter().any(|&extent| extent != 1)
                && t.check_usable(raw, place).is_some()
            {
                let message = format!("`{}`: a tile of shape {:?} as the condition", self.name, t.shape(raw));
                let way_out = "one bool decides for the whole tile block: reduce the mask with `.any(..)` or `.all(..)`; \
                               `mask.select(a, b)` decides for each element";
                t.report(place, message, &[way_out]);
                return None;
            }
            t.scalar(place, source, DType::I1)
        })
    }

    /// Records `if condition { code values } else {}`, or the same with exchanged branches. The
    /// values must have the types of `expected`.
    pub fn exit_if(
        self,
        condition: Source,
        wanted: bool,
        code: Opcode,
        values: &[ValueHandle],
        expected: &[ValueHandle],
    ) {
        let condition = self.condition(condition);
        let exit = |body: Body| {
            body.open(&[], &[]);
            body.close(code, values, expected)
        };
        let stay = |body: Body| {
            body.open(&[], &[]);
            body.close(Opcode::Yield, &[], &[])
        };
        let (first, second) = if wanted { (exit(self), stay(self)) } else { (stay(self), exit(self)) };
        let blocks = first.zip(second).map(|(a, b)| vec![a, b]);
        self.finish(Opcode::If, &[condition], None, blocks, &[], vec![]);
    }
}
