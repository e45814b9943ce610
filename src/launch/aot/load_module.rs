//! Import of Tile IR modules: compiles an entry for a device and launches it with arguments that
//! match its parameters.

use crate::launch::checks::Recorded;
use crate::util::collect::CollectVec as _;
use std::fmt;

use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::ir::{Def, Elem, Module, Opcode, Type, TypeText, Value};
use crate::kernel::{AnyArgs, LaunchArg, refuse_nested};
use crate::launch::grid::IntoGrid;
use crate::launch::inspect::remarks::{Remarks, Stages};
use crate::launch::options::{CompileRequest, Launch};
use crate::launch::run::{make, run};
use crate::launch::specialize::{Specialized, specialize_trace};
use crate::runtime::Device;
use crate::tile::trace_into_module;

/// Kernel of an imported Tile IR module, compiled for a device by [`load`].
///
/// ```
/// use cutlet as ct;
///
/// let module = ct::ir::Module::parse(
///     "fill.mlir",
///     "entry @fill(%base: tile<ptr<i32>>, %n: tile<i32>, %stride: tile<i32>) {
///        %view = make_tensor_view %base, shape = [%n], strides = [%stride] : tile<i32> -> tensor_view<?xi32, strides=[?]>
///        %tiles = make_partition_view %view : partition_view<tile=(8), tensor_view<?xi32, strides=[?]>>
///        %x, %y, %z = get_tile_block_id : tile<i32>
///        %numbers = iota : tile<8xi32>
///        %0 = store_view_tko weak %numbers, %tiles[%x] : tile<8xi32>, partition_view<tile=(8), tensor_view<?xi32, strides=[?]>>, tile<i32> -> token
///        return
///      }",
/// )
/// .unwrap();
/// let mut y = ct::Device::cpu().zeros::<i32, 1>([10])?;
/// let fill = ct::load(&module, "fill", y.device())?;
/// assert_eq!(fill.params(), ["tile<ptr<i32>>", "tile<i32>", "tile<i32>"]);
/// // SAFETY: the entry writes its array, inside of the extent that it is given.
/// unsafe { fill.launch(2, (&mut y,))? };
/// assert_eq!(y.to_vec()?, [0, 1, 2, 3, 4, 5, 6, 7, 0, 1]);
/// # Ok::<(), ct::Error>(())
/// ```
pub struct LoadedKernel {
    name: String,
    slot: Specialized,
    device: Device,
    request: CompileRequest,
    params: Vec<(Type, String)>,
    /// On the cpu device: the source of further specializations.
    module: Option<Module>,
}

/// Compiles the named entry of a Tile IR module ([`Module::parse`],
/// [`tileir::read`](crate::backend::tileir::read)) for a device.
///
/// # Errors
/// * [`Error::Argument`] if the module has no such entry;
/// * [`Error::Kernel`] if the module is ill-formed;
/// * [`Error::Unsupported`] for features that the device does not support.
///
/// ```
/// # use cutlet as ct;
/// let module = ct::ir::Module::parse("nothing.mlir", "entry @nothing() { return }").unwrap();
/// assert!(ct::load(&module, "something", ct::Device::cpu()).is_err());
/// // SAFETY: it does nothing.
/// unsafe { ct::load(&module, "nothing", ct::Device::cpu())?.launch(3, ())? };
/// # Ok::<(), ct::Error>(())
/// ```
#[track_caller]
pub fn load(module: &Module, entry: &str, device: Device) -> Result<LoadedKernel> {
    Launch::new(1).load(module, entry, device)
}

impl Launch<'_> {
    /// [`load`] with the back end and the hints of this launch.
    ///
    /// ```
    /// # use cutlet as ct;
    /// let module = ct::ir::Module::parse("nothing.mlir", "entry @nothing() { return }").unwrap();
    /// let nothing = ct::Launch::new(1).backend(ct::Backend::Cpu).load(&module, "nothing", ct::Device::cpu())?;
    /// // SAFETY: it does nothing.
    /// unsafe { nothing.launch(3, ())? };
    /// # Ok::<(), ct::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`load`].
    #[track_caller]
    pub fn load(&self, module: &Module, entry: &str, device: Device) -> Result<LoadedKernel> {
        let Some(found) = module.entries.iter().find(|known| known.name == entry) else {
            let names: Vec<String> = module.entries.iter().map(|known| format!("`{}`", known.name)).collect_vec();
            let there = if names.is_empty() { "none".to_string() } else { names.join(", ") };
            return Err(Error::argument(format!("the module has no entry `{entry}`; its entries: {there}")));
        };
        let device = self.device_without_launch(device, &())?;
        // The extent of the memory at a parameter is unknown.
        let request = CompileRequest { recorded: Recorded::NONE, ..self.request(device)? };
        let text = |value: &Value| (module.ty(*value).clone(), TypeText(module, module.ty(*value)).to_string());
        let params = module.block(found.body).args.iter().map(text).collect_vec();
        let mut own = module.clone();
        own.entries = vec![found.clone()];
        let module = device.as_gpu().is_none().then(|| own.clone());
        let slot = specialize_trace(entry, own, (device, request, self.stream), Stages::default())?;
        Ok(LoadedKernel { name: entry.to_string(), slot, device, request, params, module })
    }

    /// Launches a kernel of an imported module. The back end and hints of this launch are ignored.
    ///
    /// # Safety
    /// As [`LoadedKernel::launch`].
    ///
    /// # Errors
    /// As [`LoadedKernel::launch`].
    ///
    /// ```
    /// # use cutlet as ct;
    /// let module = ct::ir::Module::parse("nothing.mlir", "entry @nothing() { return }").unwrap();
    /// let (nothing, stream) = (ct::load(&module, "nothing", ct::Device::cpu())?, ct::Device::cpu().stream()?);
    /// // SAFETY: it does nothing.
    /// unsafe { ct::Launch::new(3).stream(&stream).launch_loaded(&nothing, ())? };
    /// # Ok::<(), ct::Error>(())
    /// ```
    #[track_caller]
    pub unsafe fn launch_loaded<A: LaunchArg>(&self, kernel: &LoadedKernel, args: A) -> Result<()> {
        refuse_nested(|| kernel.name.clone())?;
        self.device_without_launch(kernel.device, &args)?;
        kernel.check(&args)?;
        let Some(grid) = self.grid.checked(kernel.request.backend)? else {
            return self.grid.may_be_empty(&args);
        };
        let slot = kernel.slot_for(&args)?;
        run(&slot, self.stream, grid, kernel.request.programmatic_launch, self.checks_for(&kernel.request)?, &args)
    }
}

impl LoadedKernel {
    /// Launches the kernel on the default stream of its device.
    ///
    /// Arguments are those of [`crate::launch`], and correspond to parameters as described at
    /// [`crate::aot::ExportedKernel`]. An array of R dimensions is its address, R extents and R
    /// strides (i32, or i64 if offsets need it). A number is itself. [`crate::ByPointer`] is the
    /// address of an array only.
    ///
    /// # Safety
    /// A module can access any memory, at its parameters and at computed addresses. It must access
    /// its arrays only, and write only those that are passed as `&mut`. Its assumptions about its
    /// parameters must hold. On the cpu device, parameters that point into an array permit no
    /// access outside of the arrays: such an access is an error.
    ///
    /// # Errors
    /// [`Error::Argument`] if arguments and parameters differ in number or types, or arrays are on
    /// another device; else as [`crate::launch`].
    ///
    /// ```
    /// # use cutlet as ct;
    /// let module = ct::ir::Module::parse("nothing.mlir", "entry @nothing(%n: tile<i32>) { return }").unwrap();
    /// let nothing = ct::load(&module, "nothing", ct::Device::cpu())?;
    /// // SAFETY (both): it does nothing.
    /// unsafe { nothing.launch(3, (7,))? };
    /// assert!(unsafe { nothing.launch(3, (7.0f32,)) }.is_err());
    /// # Ok::<(), ct::Error>(())
    /// ```
    #[track_caller]
    pub unsafe fn launch<A: LaunchArg>(&self, grid: impl IntoGrid, args: A) -> Result<()> {
        // SAFETY: guaranteed by the caller.
        unsafe { Launch::new(grid).launch_loaded(self, args) }
    }

    /// Returns the types of the parameters, as Tile IR text.
    ///
    /// ```
    /// # use cutlet as ct;
    /// let module = ct::ir::Module::parse("nothing.mlir", "entry @nothing(%n: tile<i32>) { return }").unwrap();
    /// let nothing = ct::load(&module, "nothing", ct::Device::cpu())?;
    /// assert_eq!(nothing.params(), ["tile<i32>"]);
    /// # Ok::<(), ct::Error>(())
    /// ```
    pub fn params(&self) -> Vec<&str> {
        self.params.iter().map(|(_, text)| text.as_str()).collect_vec()
    }

    /// Returns the name of the entry in the module.
    ///
    /// ```
    /// # use cutlet as ct;
    /// let module = ct::ir::Module::parse("nothing.mlir", "entry @nothing(%n: tile<i32>) { return }").unwrap();
    /// let nothing = ct::load(&module, "nothing", ct::Device::cpu())?;
    /// assert_eq!(nothing.name(), "nothing");
    /// # Ok::<(), ct::Error>(())
    /// ```
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the device that the kernel was compiled for.
    ///
    /// ```
    /// # use cutlet as ct;
    /// let module = ct::ir::Module::parse("nothing.mlir", "entry @nothing(%n: tile<i32>) { return }").unwrap();
    /// let nothing = ct::load(&module, "nothing", ct::Device::cpu())?;
    /// assert_eq!(nothing.device(), ct::Device::cpu());
    /// # Ok::<(), ct::Error>(())
    /// ```
    pub fn device(&self) -> Device {
        self.device
    }

    /// Returns the remarks of the compiler on the kernel.
    ///
    /// ```
    /// # use cutlet as ct;
    /// let module = ct::ir::Module::parse("nothing.mlir", "entry @nothing(%n: tile<i32>) { return }").unwrap();
    /// let nothing = ct::load(&module, "nothing", ct::Device::cpu())?;
    /// assert_eq!(nothing.remarks().to_string(), "nothing: interpreted\n");
    /// # Ok::<(), ct::Error>(())
    /// ```
    pub fn remarks(&self) -> &Remarks {
        self.slot.get().expect("a slot that was specialized is filled").remarks()
    }

    /// Returns the compiled form for these arguments. The interpreter restricts addresses that are
    /// computed from a pointer parameter to the arrays of the launch. Parameters that point into no
    /// array are excepted.
    #[track_caller]
    fn slot_for(&self, args: &dyn AnyArgs) -> Result<Specialized> {
        let Some(module) = &self.module else { return Ok(self.slot.clone()) };
        make(args, self.device)?;
        let mut words = Vec::new();
        args.pack(&mut |word| words.push(word));
        let mut foreign: Vec<usize> = (0..words.len()).filter(|&index| is_pointer(&self.params[index].0)).collect_vec();
        args.memory(&mut |used| {
            if let Some(base) = used.memory.host_pointer() {
                foreign.retain(|&index| words[index].wrapping_sub(base as u64) > used.memory.len() as u64);
            }
        });
        if foreign.is_empty() {
            return Ok(self.slot.clone());
        }
        let module = with_addresses(module, &foreign);
        specialize_trace(&self.name, module, (self.device, self.request, None), Stages::default())
    }

    /// Checks that the arguments match the types of the parameters.
    #[track_caller]
    fn check(&self, args: &impl LaunchArg) -> Result<()> {
        let place = std::panic::Location::caller();
        let given = trace_into_module(&self.name, place, &|tracer| drop(args.trace(tracer)))?;
        let given = parameters_of(&given);
        if given.len() != self.params.len() {
            return Err(Error::argument(format!(
                "entry `{}` takes {} parameters ({}), and the arguments stand for {} ({}): an array is its address, its \
                 extents and its strides, `ct::ByPointer(..)` its address alone",
                self.name,
                self.params.len(),
                self.params().join(", "),
                given.len(),
                given.iter().map(|(_, text)| text.as_str()).collect_vec().join(", "),
            )));
        }
        for (index, ((wanted, wanted_text), (given, given_text))) in self.params.iter().zip(&given).enumerate() {
            if !fits(given, wanted) {
                return Err(Error::argument(format!(
                    "parameter {index} of entry `{}` is {wanted_text}, and the arguments stand for {given_text} there; \
                     all parameters: {}",
                    self.name,
                    self.params().join(", "),
                )));
            }
        }
        Ok(())
    }
}

fn is_pointer(ty: &Type) -> bool {
    matches!(ty, Type::Tile { elem: Elem::Ptr { .. }, .. })
}

/// Returns a module whose only entry has these pointer parameters as numbers, so that they can be
/// any address.
fn with_addresses(module: &Module, params: &[usize]) -> Module {
    let mut module = module.clone();
    let (body, loc) = (module.entries[0].body, module.entries[0].loc);
    let number = module.intern(Type::scalar(DType::I64));
    for &param in params {
        let (old, ty) = {
            let old = module.block(body).args[param];
            (old, module.ty_id(old))
        };
        let id = module.add_op(Opcode::IntToPtr, &[&[old]], vec![], vec![], &[ty], loc);
        let pointer = module.op(id).results[0];
        let mut users = Vec::new();
        module.walk(body, &mut |user| users.push(user));
        for user in users {
            for operand in module.op_mut(user).operands.iter_mut().filter(|operand| **operand == old) {
                *operand = pointer;
            }
        }
        module.values[old.index()].ty = number;
        module.block_mut(body).ops.insert(0, id);
    }
    module
}

/// Source of a parameter.
enum Arg {
    /// Address of elements of this type.
    Address(Elem),
    /// Extent or stride of this type.
    Extent(Type),
    Number(Type),
}

/// Returns the sources of the parameters of a traced entry, and their types as text.
fn parameters_of(module: &Module) -> Vec<(Arg, String)> {
    let body = module.entries[0].body;
    let args = &module.block(body).args;
    let position = |value: Value| {
        let mut value = value;
        while let Some(op) = module.defining_op(value).map(|op| module.op(op)).filter(|op| op.code == Opcode::Assume) {
            value = op.operands[0];
        }
        match module.def(value) {
            Def::Arg(block, index) if block == body => Some(index as usize),
            _ => None,
        }
    };
    let describe = |value: &Value| {
        let given = match module.ty(*value).as_tile() {
            Some((Elem::Ptr { .. }, _)) => Arg::Address(module.ty(*value).as_tile().expect("a tile of pointers").0),
            _ => Arg::Number(module.ty(*value).clone()),
        };
        (given, TypeText(module, module.ty(*value)).to_string())
    };
    let mut given: Vec<(Arg, String)> = args.iter().map(describe).collect_vec();
    module.walk(body, &mut |id| {
        let op = module.op(id);
        match op.code {
            // An address that is passed as a number.
            Opcode::IntToPtr => {
                let ty = module.ty(op.results[0]);
                if let (Some(index), Some((elem, _))) = (position(op.operands[0]), ty.as_tile()) {
                    given[index] = (Arg::Address(elem), TypeText(module, ty).to_string());
                }
            }
            Opcode::MakeTensorView => {
                let Some(base) = position(op.operands[0]) else { return };
                let rank = op.group(1).len();
                for param in given[base + 1..=base + 2 * rank].iter_mut() {
                    if let Arg::Number(ty) = &param.0 {
                        param.0 = Arg::Extent(ty.clone());
                    }
                }
            }
            _ => {}
        }
    });
    given
}

/// Returns true if the argument matches a parameter of that type. Parameters are words, so an
/// extent is the same number at any width.
fn fits(given: &Arg, wanted: &Type) -> bool {
    match (given, wanted) {
        (Arg::Address(elem), Type::Tile { elem: wanted, shape }) => {
            shape.is_empty() && pointee(*elem) == pointee(*wanted) && pointee(*elem).is_some()
        }
        (Arg::Extent(ty), wanted) => {
            ty == wanted || (*ty == Type::scalar(DType::I32) && *wanted == Type::scalar(DType::I64))
        }
        (Arg::Number(ty), wanted) => ty == wanted,
        _ => false,
    }
}

fn pointee(elem: Elem) -> Option<DType> {
    match elem {
        Elem::Ptr { pointee, .. } => Some(pointee),
        Elem::Num(_) => None,
    }
}

impl fmt::Debug for LoadedKernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "LoadedKernel({} for {})", self.name, self.device)
    }
}
