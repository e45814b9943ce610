//! Similarity of two orders.

use std::fmt;

/// The one in the middle.
pub fn median(numbers: impl Iterator<Item = f64>) -> f64 {
    let mut numbers: Vec<f64> = numbers.collect();
    numbers.sort_by(f64::total_cmp);
    numbers.get(numbers.len() / 2).copied().unwrap_or(f64::NAN)
}

/// Places of numbers in their order, from the smallest; equal ones share the middle of theirs.
fn places(numbers: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..numbers.len()).collect();
    order.sort_by(|&a, &b| numbers[a].total_cmp(&numbers[b]));
    let mut places = vec![0.0; numbers.len()];
    let mut first = 0;
    while first < order.len() {
        let alike = |&&index: &&usize| numbers[index] == numbers[order[first]];
        let count = order[first..].iter().take_while(alike).count();
        for &index in &order[first..first + count] {
            places[index] = first as f64 + (count - 1) as f64 / 2.0;
        }
        first += count;
    }
    places
}

/// Spearman's rank correlation of two lists; none of fewer than three numbers, or of equal ones.
pub fn spearman(a: &[f64], b: &[f64]) -> Option<f64> {
    let (a, b) = (places(a), places(b));
    let mean = |list: &[f64]| list.iter().sum::<f64>() / list.len() as f64;
    let (middle_a, middle_b) = (mean(&a), mean(&b));
    let product = |x: &[f64], of_x: f64, y: &[f64], of_y: f64| -> f64 {
        x.iter().zip(y).map(|(x, y)| (x - of_x) * (y - of_y)).sum()
    };
    let both = product(&a, middle_a, &b, middle_b);
    let (of_a, of_b) = (product(&a, middle_a, &a, middle_a), product(&b, middle_b, &b, middle_b));
    (a.len() > 2 && of_a > 0.0 && of_b > 0.0).then(|| both / (of_a * of_b).sqrt())
}

/// Several rows together.
#[derive(Default)]
pub struct Total {
    rhos: Vec<f64>,
    regrets: Vec<f64>,
}

impl Total {
    /// One more row: its rank correlation, and the slowdown of the selected plan relative to the
    /// best.
    pub fn add(&mut self, rho: Option<f64>, regret: f64) {
        self.rhos.extend(rho);
        self.regrets.push(regret);
    }
}

impl fmt::Display for Total {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mean = |list: &[f64]| list.iter().sum::<f64>() / list.len().max(1) as f64;
        let least = self.rhos.iter().copied().fold(f64::INFINITY, f64::min);
        let most = self.regrets.iter().copied().fold(0.0, f64::max);
        write!(
            f,
            "{} rows, rank correlation {:.2} on average and {least:.2} at least, regret {:.1} % on average and {:.1} % at most",
            self.regrets.len(),
            mean(&self.rhos),
            100.0 * mean(&self.regrets),
            100.0 * most
        )
    }
}
