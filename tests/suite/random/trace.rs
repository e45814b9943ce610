//! A random program as a kernel: its steps recorded with the front end.

use std::cell::RefCell;

use cutlet as ct;
use cutlet::prelude::*;

use super::kind::{Held, Kind, Value, each_kind};
use super::packed;
use super::program::{Form, Id, Program, Region, Step};

macro_rules! stored {
    ($($float:ident $fty:ident $fname:ident),+; $($int:ident $ity:ident $iname:ident),+) => {
        /// The input arrays: of each kind one or none.
        #[derive(Clone)]
        pub struct Inputs { $(pub $fname: Vec<Array<$fty, 2>>,)+ $(pub $iname: Vec<Array<$ity, 2>>,)+ }

        /// The output arrays: of each kind one or none.
        #[derive(Clone)]
        pub struct Outputs { $(pub $fname: Vec<ArrayMut<$fty, 2>>,)+ $(pub $iname: Vec<ArrayMut<$ity, 2>>,)+ }

        /// Input arrays as the kernel takes them.
        pub type InputLists = (($(Vec<Array<$fty, 2>>,)+), ($(Vec<Array<$ity, 2>>,)+));
        /// Output arrays as the kernel takes them.
        pub type OutputLists = (($(Vec<ArrayMut<$fty, 2>>,)+), ($(Vec<ArrayMut<$ity, 2>>,)+));

        impl From<InputLists> for Inputs {
            fn from((($($fname,)+), ($($iname,)+)): InputLists) -> Inputs {
                Inputs { $($fname,)+ $($iname,)+ }
            }
        }
        impl From<OutputLists> for Outputs {
            fn from((($($fname,)+), ($($iname,)+)): OutputLists) -> Outputs {
                Outputs { $($fname,)+ $($iname,)+ }
            }
        }

        /// Element types of arrays.
        pub trait Stored: Held {
            fn input(arrays: &Inputs) -> Array<Self, 2>;
            fn output(arrays: &Outputs) -> ArrayMut<Self, 2>;
        }
        $(stored!(@one $fty $fname);)+
        $(stored!(@one $ity $iname);)+
    };
    (@one $ty:ident $name:ident) => {
        impl Stored for $ty {
            fn input(arrays: &Inputs) -> Array<Self, 2> {
                arrays.$name[0]
            }
            fn output(arrays: &Outputs) -> ArrayMut<Self, 2> {
                arrays.$name[0]
            }
        }
    };
}
each_kind!(stored);

/// The kernel.
pub fn kernel(inputs: InputLists, outputs: OutputLists, packed: (packed::Reads, packed::Writes), program: Program) {
    let forms = program.forms().expect("programs make sense");
    let tracer = Tracer {
        program: &program,
        forms,
        inputs: inputs.into(),
        outputs: outputs.into(),
        packed: packed.into(),
        values: RefCell::new(vec![None; program.count]),
    };
    tracer.run(&program.steps);
}

/// Records steps.
pub struct Tracer<'a> {
    pub program: &'a Program,
    forms: Vec<Option<Form>>,
    inputs: Inputs,
    outputs: Outputs,
    pub packed: packed::All,
    values: RefCell<Vec<Option<Value>>>,
}

impl Tracer<'_> {
    pub fn run(&self, steps: &[Step]) {
        for step in steps {
            let made = (step.op.trace)(self, step);
            assert_eq!(made.len(), step.out.len(), "results of {}", step.op.name);
            self.set(&step.out, made);
        }
    }

    pub fn value(&self, id: Id) -> Value {
        self.values.borrow()[id].expect("values come before their use")
    }

    pub fn tile<T: Held>(&self, id: Id) -> Tile<T, 2> {
        T::tile(self.value(id))
    }

    /// The only element of a value.
    pub fn item<T: Held + ByteSized>(&self, id: Id) -> Scalar<T> {
        self.tile::<T>(id).item()
    }

    /// Returns true if any element of a value is true.
    pub fn any(&self, id: Id) -> Scalar<bool> {
        self.tile::<bool>(id).any(..).item()
    }

    pub fn kind(&self, id: Id) -> Kind {
        self.forms[id].expect("a value of the program").kind
    }

    pub fn form(&self, id: Id) -> Form {
        self.forms[id].expect("a value of the program")
    }

    pub fn set(&self, ids: &[Id], made: Vec<Value>) {
        let mut values = self.values.borrow_mut();
        ids.iter().zip(made).for_each(|(&id, value)| values[id] = Some(value));
    }

    pub fn all(&self, ids: &[Id]) -> Vec<Value> {
        ids.iter().map(|&id| self.value(id)).collect()
    }

    /// Runs a region, and returns its results.
    pub fn region(&self, region: &Region, params: Vec<Value>) -> Vec<Value> {
        self.set(&region.params, params);
        self.run(&region.steps);
        self.all(&region.results)
    }
}

/// Arguments of a form other than its operands.
pub trait Given {
    fn given(tracer: &Tracer<'_>, step: &Step) -> Self;
}

impl<T: Stored> Given for Array<T, 2> {
    fn given(tracer: &Tracer<'_>, _: &Step) -> Self {
        T::input(&tracer.inputs)
    }
}
impl<T: Stored> Given for ArrayMut<T, 2> {
    fn given(tracer: &Tracer<'_>, _: &Step) -> Self {
        T::output(&tracer.outputs)
    }
}

/// The extents of the first result; of a step without results those of the program's tiles.
pub type Shape = [usize; 2];
/// The tile index of the block.
pub type At = [Scalar<i32>; 2];

impl Given for At {
    fn given(_: &Tracer<'_>, _: &Step) -> Self {
        [ct::bid(0), ct::bid(1)]
    }
}
impl Given for Shape {
    fn given(tracer: &Tracer<'_>, step: &Step) -> Self {
        step.out.first().map_or(tracer.program.tile, |&id| tracer.form(id).shape)
    }
}
/// The first element of the block's tile.
#[derive(Clone, Copy)]
pub struct Corner(pub At);
impl Given for Corner {
    fn given(tracer: &Tracer<'_>, _: &Step) -> Self {
        Corner([0, 1].map(|axis| ct::bid(axis) * tracer.program.tile[axis]))
    }
}

/// Results of a step, as a list.
pub trait Made {
    fn values(self) -> Vec<Value>;
}
impl Made for () {
    fn values(self) -> Vec<Value> {
        vec![]
    }
}
impl<T: Held> Made for Tile<T, 2> {
    fn values(self) -> Vec<Value> {
        vec![T::hold(self)]
    }
}
impl<T: Held, U: Held> Made for (Tile<T, 2>, Tile<U, 2>) {
    fn values(self) -> Vec<Value> {
        vec![T::hold(self.0), U::hold(self.1)]
    }
}
