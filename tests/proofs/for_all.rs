//! Proofs for all extents: usual kernels, planted mistakes, and random kernels whose proofs are
//! compared with those of concrete extents.

use cutlet as ct;
use cutlet::Property::{self, *};
use cutlet::prelude::*;
use cutlet::{ArraySpec, Symbol, Verdict};

fn size(name: &'static str) -> Symbol {
    Symbol::new(name, 1..=1 << 20)
}

fn copy(x: Array<f32, 1>, y: ArrayMut<f32, 1>) {
    y.store(ct::bid(0), x.load(ct::bid(0), [256]));
}

fn gathered(x: Array<f32, 1>, y: ArrayMut<f32, 1>) {
    let at = ct::bid(0) * 128 + ct::arange(0..128);
    y.scatter(at, x.gather(at));
}

fn softmax(x: Array<f32, 2>, y: ArrayMut<f32, 2>) {
    let row = x.load((ct::bid(0), 0), [1, 1024]);
    let e = (row - row.reduce_max(1).reshape([1, 1])).exp();
    y.store((ct::bid(0), 0), e / e.sum(1).reshape([1, 1]));
}

fn matmul(a: Array<f32, 2>, b: Array<f32, 2>, c: ArrayMut<f32, 2>) {
    let (i, j) = (ct::bid(0), ct::bid(1));
    let sum = ct::fold(..a.num_tiles(1, [32, 16]), ct::zeros::<f32, 2>([32, 32]), |sum, k| {
        ct::mma(a.load((i, k), [32, 16]), b.load((k, j), [16, 32]), sum)
    });
    c.store((i, j), sum);
}

/// Each tile block copies all tiles of its row.
fn rows(x: Array<f32, 2>, y: ArrayMut<f32, 2>) {
    let i = ct::bid(0);
    ct::for_each(..x.num_tiles(1, [4, 64]), |j| y.store((i, j), x.load((i, j), [4, 64])));
}

/// The last tile block computes the last whole tile once more.
fn clamped(x: Array<f32, 1>, y: ArrayMut<f32, 1>) {
    let last = x.num_tiles(0, [16]) - 1;
    let i = ct::bid(0).min(last);
    y.store(ct::bid(0), x.load(i, [16]));
}

#[test]
fn usual_kernels_are_proved_for_all_extents() {
    let (m, n, k) = (size("m"), size("n"), size("k"));
    let vector = ArraySpec::<f32, 1>::symbolic([n]);
    let of = |shape| ArraySpec::<f32, 2>::symbolic(shape);
    let (x, a, b, c) = (of([m, n]), of([m, k]), of([k, n]), of([m, n]));
    let columns = of([m, Symbol::from(1000)]);
    let proofs = [
        ct::prove_for_all(copy, [n.div_ceil(256)], (vector, vector.mutable()), Property::ALL),
        ct::prove_for_all(gathered, [n.div_ceil(128)], (vector, vector.mutable()), Property::ALL),
        ct::prove_for_all(clamped, [n.div_ceil(16)], (vector, vector.mutable()), Property::ALL),
        ct::prove_for_all(softmax, [m], (columns, columns.mutable()), Property::ALL),
        ct::prove_for_all(rows, [m.div_ceil(4)], (x, x.mutable()), Property::ALL),
        ct::prove_for_all(matmul, [m.div_ceil(32), n.div_ceil(32)], (a, b, c.mutable()), Property::ALL),
        ct::prove_for_all(
            copy,
            [n],
            (ArraySpec::symbolic([n * 256]), ArraySpec::symbolic([n * 256]).mutable()),
            Property::ALL,
        ),
    ];
    for proof in proofs {
        let proof = proof.unwrap();
        proof.require().unwrap_or_else(|problem| panic!("{problem}"));
        println!("{proof}");
    }
}

#[track_caller]
fn refuted(property: Property, proof: ct::Result<ct::Proof>) {
    let proof = proof.unwrap();
    let Some(Verdict::Refuted(case)) = proof.verdict(property) else { panic!("{property} is not refuted:\n{proof}") };
    assert!(case.diagnostic.to_string().contains("for n = "), "{}", case.diagnostic);
}

#[test]
fn planted_mistakes_have_concrete_counter_examples() {
    let n = size("n");
    let x = ArraySpec::<f32, 1>::symbolic([n]);
    let both = (x, x.mutable());
    // The grid: rounded down, and one tile block too many.
    refuted(Covers, ct::prove_for_all(copy, [(n + 1).div_ceil(300)], both, [Covers]));
    refuted(Bounds, ct::prove_for_all(copy, [n.div_ceil(256) + 1], both, [Bounds]));
    refuted(Covers, ct::prove_for_all(gathered, [n.div_ceil(150)], both, [Covers]));
    // Tiles that overlap by one element.
    let overlapping = |x: Array<f32, 1>, y: ArrayMut<f32, 1>| {
        let first = ct::bid(0) * 15;
        y.store(ct::at(first), x.load(ct::at(first), [16]));
    };
    refuted(UniqueWrites, ct::prove_for_all(overlapping, [n.div_ceil(15)], both, [UniqueWrites]));
    // A neighbour that another tile block writes.
    let smooth = |_: Array<f32, 1>, y: ArrayMut<f32, 1>| {
        let left = y.load((ct::bid(0) - 1).max(0), [16]);
        y.store(ct::bid(0), left + y.load(ct::bid(0), [16]));
    };
    refuted(NoRace, ct::prove_for_all(smooth, [n.div_ceil(16)], both, [NoRace]));
}

#[test]
fn undecided_properties_are_unknown() {
    let n = size("n");
    // A table decides.
    let table = |rows: Array<i32, 1>, y: ArrayMut<f32, 1>| y.store(rows.load_scalar(ct::bid(0)), ct::ones([16]));
    let specs = (ArraySpec::symbolic([n]), ArraySpec::symbolic([n * 16]).mutable());
    let proof = ct::prove_for_all(table, [n], specs, [Bounds, UniqueWrites, Covers]).unwrap();
    assert!(proof.verdicts().iter().all(|(_, verdict)| matches!(verdict, Verdict::Unknown(_))), "{proof}");
    assert!(ct::prove_for_all(table, [], specs, [Bounds]).is_err());
    assert!(ct::prove(table, 1, specs, [Bounds]).is_err());
}

struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 33) as usize % bound
    }
}

/// A kernel on an array of `factor * n + more` elements.
#[derive(Clone, Copy, Debug)]
struct Case {
    tile: usize,
    factor: usize,
    more: usize,
    divisor: usize,
    blocks: usize,
    form: usize,
    numbers: [i32; 3],
}

impl Case {
    fn random(random: &mut Random) -> Case {
        let tile = 1 << random.below(5);
        // Half of the grids have the right number of tile blocks.
        let divisor = if random.below(2) == 0 { tile } else { 1 + random.below(20) };
        let numbers = [random.below(4) as i32, random.below(4) as i32, 1 + random.below(5) as i32];
        let (factor, more, blocks) = (1 + random.below(3), random.below(4), random.below(4) / 3);
        Case { tile, factor, more, divisor, blocks, form: random.below(7), numbers }
    }

    fn body(self, y: ArrayMut<i32, 1>) {
        let (i, [a, b, c], tile) = (ct::bid(0), self.numbers, self.tile);
        let one = || ct::ones::<i32, 1>([tile]);
        let last = || y.num_tiles(0, [tile]) - 1;
        match self.form {
            0 => y.store(i, one()),
            1 => y.store(i * c + a, one()),
            2 => y.store((i + a).min(last()), one()),
            3 => y.scatter(i * tile as i32 + ct::arange(0..tile as i32) + a, one()),
            4 => ct::if_then((i + b).le(last()), || y.store(i + b, y.load(i, [tile]) + 1)),
            5 => y.store((i / c) * c + i % c, one()),
            _ => ct::for_each(..c, |k| y.store((i * c + k).max(b), one())),
        }
    }

    fn extent(self, n: usize) -> usize {
        self.factor * n + self.more
    }

    fn for_all(self) -> ct::Proof {
        let n = Symbol::new("n", 1..=100_000);
        let extent = n * self.factor + self.more;
        let grid = [extent.div_ceil(self.divisor) + self.blocks];
        let y = ArraySpec::<i32, 1>::symbolic([extent]).mutable();
        ct::prove_for_all(move |y: ArrayMut<i32, 1>| self.body(y), grid, (y,), Property::ALL).unwrap()
    }

    /// `quotient`: the number of tile blocks.
    fn concrete(self, n: usize, quotient: fn(usize, usize) -> usize) -> ct::Proof {
        let y = ArraySpec::<i32, 1>::new([self.extent(n)]).mutable();
        let grid = quotient(self.extent(n), self.divisor) + self.blocks;
        ct::prove(move |y: ArrayMut<i32, 1>| self.body(y), grid, (y,), Property::ALL).unwrap()
    }
}

/// Compares proofs for all extents with those of concrete ones. Returns the numbers of proofs, of
/// refutations and of contradictions.
fn compared(seeds: std::ops::Range<u64>, quotient: fn(usize, usize) -> usize) -> [usize; 3] {
    let (mut counts, mut random) = ([0; 3], Random(7));
    for _ in seeds {
        let case = Case::random(&mut random);
        let proof = case.for_all();
        let extents: Vec<usize> = (0..4).map(|_| 1 + random.below(200)).chain([1, 16, 17, 1000]).collect();
        for (property, verdict) in proof.verdicts() {
            match verdict {
                Verdict::Proved => {
                    counts[0] += 1;
                    let differs = |&n: &usize| {
                        case.extent(n) >= case.divisor
                            && case.concrete(n, quotient).verdict(*property) != Some(&Verdict::Proved)
                    };
                    if let Some(n) = extents.iter().find(|n| differs(n)) {
                        println!("{case:?}, n = {n}: {property}");
                        counts[2] += 1;
                    }
                }
                Verdict::Refuted(_) => counts[1] += 1,
                _ => {}
            }
        }
    }
    counts
}

#[test]
fn proofs_hold_for_concrete_extents() {
    let [proved, refuted, wrong] = compared(0..60, usize::div_ceil);
    println!("{proved} proved, {refuted} refuted");
    assert!(proved > 40 && refuted > 40, "{proved} proved, {refuted} refuted");
    assert_eq!(wrong, 0);
}

/// The comparison finds a wrong rule: quotients that are rounded down.
#[test]
fn a_wrong_rule_is_found() {
    assert!(compared(0..60, |n, by| n / by)[2] > 0);
}
