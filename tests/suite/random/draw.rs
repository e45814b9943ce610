//! Draws a program by its number.

use rand::rngs::SmallRng;
use rand::seq::IndexedRandom;
use rand::{RngExt, SeedableRng};

use super::kind::Kind;
use super::layouts::{layout_of, with_layouts};
use super::ops::{all, named};
use super::program::{Arg, Form, Id, MAX_ELEMENTS, Op, Program, Region, Step, Typing, stretches};

/// Draws a step with regions of at most this depth.
pub type Draw = fn(&mut Generator, &Scope, &'static Op, usize) -> Option<Step>;

/// Visible values, and the steps since the begin of the scope.
#[derive(Clone, Default)]
pub struct Scope {
    pub visible: Vec<Id>,
    pub steps: Vec<Step>,
}

pub struct Generator {
    pub random: SmallRng,
    pub typing: Typing,
    pub next: Id,
    /// The kinds of this program.
    palette: Vec<Kind>,
    /// Forms with their weights in this program, added up.
    weights: Vec<(u64, &'static Op)>,
    /// True if the program may have types of few targets of Tile IR.
    newest: bool,
}

/// Types that Tile IR has for the latest targets alone: there, whole programs with them are
/// skipped.
fn is_newest(kind: Kind) -> bool {
    matches!(kind, Kind::E8m0 | Kind::F4)
}

/// Returns true if the program of a seed has extents that are sums of powers of two.
fn has_sums(seed: u64) -> bool {
    seed % 8 == 5
}

/// Returns true if the program of a seed sets layouts of tiles.
fn has_layouts(seed: u64) -> bool {
    seed % 8 == 3
}

/// The program of a seed.
pub fn generate(seed: u64) -> Program {
    let mut random = SmallRng::seed_from_u64(seed);
    let powers = [1, 2, 4, 8, 16, 32, 64];
    let sums = [1, 3, 5, 6, 7, 8, 12, 20, 24, 28, 32, 40, 48, 56, 96];
    let extents: &[usize] = if has_sums(seed) { &sums } else { &powers };
    let mut tile = [*extents.choose(&mut random).unwrap(), *extents[2..].choose(&mut random).unwrap()];
    if tile[0] * tile[1] > MAX_ELEMENTS {
        tile[0] /= 4;
    }
    let shape = tile.map(|extent| random.random_range(1..=3 * extent));
    let mut palette = vec![Kind::I32, Kind::Bool];
    palette.extend((0..random.random_range(2..6)).map(|_| *Kind::ARRAYS.choose(&mut random).unwrap()));
    let newest = seed.is_multiple_of(4);
    palette.retain(|&kind| newest || !is_newest(kind));
    // Rows of half bytes have whole bytes.
    palette.retain(|&kind| kind != Kind::F4 || tile[1] % 2 == 0);
    palette.push(*Kind::FLOATS.choose(&mut random).unwrap());
    palette.push(*Kind::INTS.choose(&mut random).unwrap());
    palette.sort();
    palette.dedup();
    let weights = weights(&mut random, newest);
    let mut generator = Generator { random, typing: Typing::new(tile, 0), next: 0, palette, weights, newest };
    let mut scope = Scope::default();
    for kind in generator.palette.clone() {
        generator.push(&mut scope, step(named("load"), kind, vec![], vec![0, 0])).expect("loads of every kind");
    }
    let length = generator.random.random_range(5..30);
    generator.fill(&mut scope, length, 2);
    generator.store(&mut scope, tile);
    let program = Program { shape, tile, steps: scope.steps, count: generator.next };
    if has_layouts(seed) { with_layouts(&mut generator, program) } else { program }
}

/// A program that has every form, in the order of the tables, and the names of those for which
/// nothing fits.
pub fn of_every_form() -> (Program, Vec<&'static str>) {
    let mut random = SmallRng::seed_from_u64(1);
    let (tile, shape) = ([8, 32], [9, 5]);
    let weights = weights(&mut random, true);
    let palette = Kind::ARRAYS.to_vec();
    let typing = Typing::new(tile, 0);
    let mut generator = Generator { random, typing, next: 0, palette, weights, newest: true };
    let mut scope = Scope::default();
    for &kind in Kind::ARRAYS {
        generator.push(&mut scope, step(named("load"), kind, vec![], vec![0, 0])).expect("loads of every kind");
    }
    // Operands of products.
    for kind in [Kind::U8, Kind::I8] {
        let id = generator.value(&scope, |form| form.kind == kind).expect("a loaded tile");
        generator.push(&mut scope, step(named("transpose"), Kind::Bool, vec![id], vec![])).expect("a transposed tile");
    }
    let mut missing = Vec::new();
    // Ops with operands from other ops are later, and ops that end a block are last.
    let (last, first): (Vec<_>, Vec<_>) = all().iter().copied().partition(|op| op.name.starts_with("return_if"));
    let (products, others): (Vec<_>, Vec<_>) =
        first.into_iter().partition(|op| op.family == "products" || op.name == "scalars");
    for op in products.iter().skip(1).chain(&others).chain(products.first()).chain(&last).filter(|op| op.weight > 0) {
        let mut attempt = || {
            let step = match op.draw {
                Some(draw) => draw(&mut generator, &scope, op, 1)?,
                None => generator.plain(&scope, op)?,
            };
            generator.push(&mut scope, step)
        };
        if !(0..5000).any(|_| attempt().is_some()) {
            missing.push(op.name);
        }
    }
    let id = generator.value(&scope, |form| form == Form::new(Kind::F32, tile)).expect("a loaded tile");
    let step = layout_of(&mut generator, id, 7);
    generator.push(&mut scope, step).expect("a tile in a layout");
    generator.store(&mut scope, tile);
    (Program { shape, tile, steps: scope.steps, count: generator.next }, missing)
}

/// Some families are likelier than others, others in every program.
fn weights(random: &mut SmallRng, newest: bool) -> Vec<(u64, &'static Op)> {
    let mut families: Vec<&str> = all().iter().map(|op| op.family).collect();
    families.dedup();
    let favourites: Vec<&str> = families.sample(random, 3).copied().collect();
    let mut sum = 0;
    all()
        .iter()
        .map(|&op| {
            let of_newest = matches!(op.name, "mma_scaled" | "bitcast u8 e8m0") || op.name.contains("f8e5m3fnu");
            let is_left_out = !newest && of_newest;
            sum += u64::from(if is_left_out { 0 } else { op.weight })
                * if favourites.contains(&op.family) { 6 } else { 1 };
            (sum, op)
        })
        .collect()
}

fn step(op: &'static Op, kind: Kind, args: Vec<Id>, numbers: Vec<i64>) -> Step {
    Step { op, kind, args, numbers, regions: vec![], out: vec![] }
}

impl Generator {
    pub fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        *from.choose(&mut self.random).expect("a choice")
    }

    pub fn fill(&mut self, scope: &mut Scope, length: usize, depth: usize) {
        for _ in 0..length {
            // Not every choice fits the current values: draw until one does.
            while self.try_step(scope, depth).is_none() {}
        }
    }

    fn try_step(&mut self, scope: &mut Scope, depth: usize) -> Option<()> {
        let total = self.weights.last().expect("forms").0;
        let at = self.random.random_range(0..total);
        let op = self.weights[self.weights.partition_point(|&(sum, _)| sum <= at)].1;
        let step = match op.draw {
            Some(_) if depth == 0 => return None,
            Some(draw) => draw(self, scope, op, depth)?,
            None => self.plain(scope, op)?,
        };
        self.push(scope, step)
    }

    /// A step without regions.
    pub fn plain(&mut self, scope: &Scope, op: &'static Op) -> Option<Step> {
        let kind = match op.kinds {
            Some(class) => self.kind(class)?,
            None => Kind::Bool,
        };
        let mut args: Vec<Id> = Vec::new();
        for arg in op.args {
            let first = args.first().and_then(|&id| self.typing.get(id));
            args.push(self.value(scope, |form| arg.fits(form, first.unwrap_or(form)))?);
        }
        let numbers = self.numbers(op);
        Some(step(op, kind, args, numbers))
    }

    pub fn numbers(&mut self, op: &Op) -> Vec<i64> {
        op.numbers.iter().map(|&(low, high)| self.random.random_range(low..=high)).collect()
    }

    /// A kind of a class, mostly one of the program's.
    fn kind(&mut self, class: fn(Kind) -> bool) -> Option<Kind> {
        let rare = self.random.random_range(0..8) == 0;
        let every: Vec<Kind> = Kind::ARRAYS.iter().copied().chain([Kind::F4]).collect();
        let fits = |kind: &Kind| class(*kind) && (self.newest || !is_newest(*kind));
        let from: Vec<Kind> = if rare { &every } else { &self.palette }.iter().copied().filter(fits).collect();
        from.choose(&mut self.random).copied()
    }

    /// A value that fits; later ones are likelier, so that chains grow long.
    pub fn value(&mut self, scope: &Scope, fits: impl Fn(Form) -> bool) -> Option<Id> {
        let ids: Vec<Id> = scope.visible.iter().copied().filter(|&id| self.typing.get(id).is_some_and(&fits)).collect();
        if ids.is_empty() {
            return None;
        }
        let back = (self.random.random::<f64>().powi(2) * ids.len() as f64) as usize;
        Some(ids[ids.len() - 1 - back])
    }

    /// Appends a step if it makes sense.
    pub fn push(&mut self, scope: &mut Scope, mut step: Step) -> Option<()> {
        let forms = self.typing.results(&step)?;
        for form in forms {
            let id = self.fresh(form);
            step.out.push(id);
            scope.visible.push(id);
        }
        scope.steps.push(step);
        Some(())
    }

    /// A new value.
    pub fn fresh(&mut self, form: Form) -> Id {
        self.next += 1;
        self.typing.set(self.next - 1, form);
        self.next - 1
    }

    /// Draws a region with parameters of these forms and a few steps; its visible values are in the
    /// scope.
    pub fn region(&mut self, outside: &Scope, params: &[Form], length: usize, depth: usize) -> (Region, Scope) {
        let params: Vec<Id> = params.iter().map(|&form| self.fresh(form)).collect();
        let mut inner = Scope { visible: outside.visible.clone(), steps: Vec::new() };
        inner.visible.extend(&params);
        self.fill(&mut inner, length, depth - 1);
        let steps = std::mem::take(&mut inner.steps);
        (Region { params, steps, results: vec![] }, inner)
    }

    /// Values of these forms.
    pub fn values(&mut self, scope: &Scope, forms: &[Form]) -> Option<Vec<Id>> {
        forms.iter().map(|&form| self.value(scope, |other| other == form)).collect()
    }

    /// Stores the last value of each kind that can be.
    fn store(&mut self, scope: &mut Scope, tile: [usize; 2]) {
        let loaded = self.palette.len();
        for &kind in Kind::ARRAYS {
            let fits = |&&id: &&Id| self.typing.get(id).is_some_and(|f| f.kind == kind && stretches(f.shape, tile));
            let last = scope.visible[loaded..].iter().rev().find(fits).copied();
            if let Some(id) = last {
                self.push(scope, step(named("store"), kind, vec![id], vec![])).expect("a value that can be stored");
            }
        }
    }
}

/// One element of a class, or any shape.
pub fn single(kind: Kind) -> impl Fn(Form) -> bool {
    move |form| Arg::Single(|_| true).fits(form, form) && form.kind == kind
}
