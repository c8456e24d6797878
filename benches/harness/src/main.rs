//! midi's benchmarks: a load generator, an echo server that gives the floor, and the
//! side-by-side experiments that both serve.
//!
//! ```text
//! experiments  what is compared: servers, data, load, goals
//!      │
//!    bench     starts and pins servers, fills them, interleaves the rounds
//!    ┌─┴──┐
//! server  load, replay (processes of their own)      echo
//!      │
//!   report     terminal, JSON, HTML, docs/benchmarks.md
//! ```

mod bench;
mod control;
mod echo;
mod experiments;
#[path = "../../../tests/common/free_port.rs"]
mod free_port;
mod goals;
mod load;
mod machine;
mod process;
mod replay;
mod report;
mod results;
mod server;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, Result, ensure};
use clap::{Args, Parser, Subcommand};

use crate::bench::{Bench, Plan, fresh_directory, series_of};
use crate::report::{Page, Plot};
use crate::results::{Outcome, Results};
use crate::server::{Catalogue, Placement};

#[derive(Parser)]
#[command(version, about)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run experiments and report
    Run(RunOptions),
    /// Write the reports again from what was measured
    Report(ReportOptions),
    /// Send commands to a server and measure
    Load(load::Options),
    /// Use a server as a cache and count the hits
    Replay(replay::Options),
    /// Serve a fixed reply without parsing: the floor
    Echo(echo::Options),
}

#[derive(Args)]
struct RunOptions {
    /// Only experiments of this section, or the one of this name
    #[arg(long)]
    experiment: Option<String>,
    /// Only series whose names contain this: for a look, the others have no figures then
    #[arg(long)]
    series: Vec<String>,
    /// Only points whose names contain this
    #[arg(long)]
    point: Vec<String>,
    /// Leave out the experiments that were run with this commit and so many rounds already
    #[arg(long)]
    resume: bool,
    /// Short rounds, and fewer of them: for a look
    #[arg(long)]
    quick: bool,
    /// Rounds of each leg
    #[arg(long)]
    rounds: Option<u32>,
    /// Seconds that each is measured
    #[arg(long)]
    seconds: Option<f64>,
    /// Keys of the other experiments
    #[arg(long)]
    keys: Option<u64>,
    /// Keys of the experiments with very many
    #[arg(long)]
    many_keys: Option<u64>,
    /// Processors for servers that run apart from their load, such as 0,1
    #[arg(long, value_delimiter = ',')]
    server_cpus: Vec<usize>,
    /// Processors for that load
    #[arg(long, value_delimiter = ',')]
    load_cpus: Vec<usize>,
    #[command(flatten)]
    report: ReportOptions,
}

#[derive(Args)]
struct ReportOptions {
    /// Where the page and the JSON go
    #[arg(long, default_value = "bench-report")]
    directory: PathBuf,
    /// Write this page too, and its plots and figures in the folder beside it; quick runs are left
    /// out of it
    #[arg(long)]
    docs: Option<PathBuf>,
}

fn main() -> ExitCode {
    match command() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("midi-bench: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn command() -> Result<()> {
    match Cli::parse().command {
        Command::Run(options) => run(&options),
        Command::Report(options) => {
            let folder = options.docs.as_deref().map(folder_of);
            let results = read(&folder.as_ref().unwrap_or(&options.directory).join(ROUNDS))?;
            write_reports(&options, &results)
        }
        Command::Load(options) => {
            let summary = load::run(&options)?;
            match options.json {
                true => println!("{}", serde_json::to_string(&summary)?),
                false => print!("{summary}"),
            }
            Ok(())
        }
        Command::Replay(options) => {
            let found = replay::run(&options)?;
            match options.json {
                true => println!("{}", serde_json::to_string(&found)?),
                false => print!("{found}"),
            }
            Ok(())
        }
        Command::Echo(options) => echo::serve(&options),
    }
}

fn run(options: &RunOptions) -> Result<()> {
    let mut plan = if options.quick { Plan::QUICK } else { Plan::FULL };
    plan.rounds = options.rounds.unwrap_or(plan.rounds);
    plan.seconds = options.seconds.unwrap_or(plan.seconds);
    plan.keys = options.keys.unwrap_or(plan.keys);
    plan.populate = options.many_keys.unwrap_or(plan.populate);
    let catalogue = Catalogue::from_environment()?;
    let mut placement = Placement::halves(&process::processors());
    if !options.server_cpus.is_empty() {
        placement.servers.clone_from(&options.server_cpus);
    }
    if !options.load_cpus.is_empty() {
        placement.load.clone_from(&options.load_cpus);
    }
    let wanted = |number: u32, name: &str| match &options.experiment {
        None => true,
        Some(which) => *which == number.to_string() || which == name,
    };
    let mut experiments = experiments::all(&catalogue, &plan);
    experiments.retain(|experiment| wanted(experiment.number, experiment.name));
    if !options.series.is_empty() || !options.point.is_empty() {
        let is_wanted = |texts: &[String], name: &str| {
            texts.is_empty() || texts.iter().any(|text| name.contains(text))
        };
        let (series, points) = (&options.series, &options.point);
        for experiment in &mut experiments {
            experiment
                .retain(|leg| is_wanted(series, &leg.series) && is_wanted(points, &leg.point));
        }
        experiments.retain(|experiment| !experiment.legs.is_empty());
    }
    ensure!(
        !experiments.is_empty(),
        "no experiment is called {}",
        options.experiment.as_deref().unwrap_or("")
    );

    let path = options.report.directory.join(if plan.quick { "quick.json" } else { ROUNDS });
    let mut results = read(&path).unwrap_or_default();
    results.machine = machine::this_machine();
    let commit = results.machine.commit.clone();
    if options.resume {
        experiments.retain(|experiment| {
            !results.has(experiment.name, &commit, plan, &series_of(&experiment.legs))
        });
    }
    let bench = Bench { placement, dir: fresh_directory(Path::new("target/bench"))?, plan, commit };
    let mut measured: Vec<Outcome> = Vec::new();
    for experiment in experiments {
        let outcome = bench.run(experiment)?;
        print!("{}", report::terminal(std::slice::from_ref(&outcome), &[]));
        results.replace(outcome.clone(), &experiments::NAMES);
        measured.push(outcome);
        // The measurements so far are kept, whatever happens to the next one.
        write(&path, &serde_json::to_string(&results)?)?;
    }
    let of_this_run = Results { machine: results.machine.clone(), outcomes: measured };
    print!("{}", report::terminal(&[], &goals::judged(&of_this_run)));
    write_reports(&options.report, &results)
}

fn read(path: &Path) -> Result<Results> {
    let text = fs::read_to_string(path).with_context(|| path.display().to_string())?;
    serde_json::from_str(&text).with_context(|| path.display().to_string())
}

/// The file of the measurements.
const ROUNDS: &str = "rounds.json";

/// The folder that has a page's plots and figures.
fn folder_of(page: &Path) -> PathBuf {
    page.with_extension("")
}

fn write_reports(options: &ReportOptions, results: &Results) -> Result<()> {
    let (goals, plots) = (goals::judged(results), report::plots(results)?);
    let inline = Page::new(results, &goals, &plots, |plot| plot.svg.clone()).markdown()?;
    let path = options.directory.join("index.html");
    write(&path, &report::html(&inline)?)?;
    println!("\n{} is the page.", path.display());
    let Some(docs) = &options.docs else { return Ok(()) };
    // A page with gaps would be worth less than the existing one.
    let missing: Vec<&str> =
        experiments::NAMES.into_iter().filter(|name| results.outcome(name).is_none()).collect();
    if !missing.is_empty() {
        println!("{} is left as it is: {} not run yet.", docs.display(), missing.join(", "));
    } else if !results.outcomes.iter().any(|outcome| outcome.quick) {
        let folder = folder_of(docs);
        let name = folder.file_name().unwrap_or_default().to_string_lossy();
        for plot in &plots {
            write(&folder.join(plot.file), &plot.svg)?;
        }
        write(&folder.join(ROUNDS), &serde_json::to_string(&results.without_commands())?)?;
        let linked =
            |plot: &Plot| format!("![{}: {}]({name}/{})", plot.title, plot.sentence, plot.file);
        write(docs, &Page::new(results, &goals, &plots, linked).markdown()?)?;
        println!("{} is up to date.", docs.display());
    }
    Ok(())
}

fn write(path: &Path, text: &str) -> Result<()> {
    if let Some(directory) = path.parent() {
        fs::create_dir_all(directory)?;
    }
    fs::write(path, text).with_context(|| path.display().to_string())
}
