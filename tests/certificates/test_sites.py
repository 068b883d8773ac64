"""Certificates of sites: calibrated on sites that are drawn, bounded from the test alone, verified, refused."""

import dataclasses
import json
import re
import shutil
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import ks_2samp

import evarl
from benchmarks.sites_gap import exact_values
from evarl import bounds
from evarl.certificates import hashes, ledger
from evarl.certificates.certificate import Certificate, load, save
from evarl.certificates.certified_policy import open_policy
from evarl.certificates.claims import conclude, gather
from evarl.certificates.evidence import PolicyTest, site_context
from evarl.certificates.issue import Issued, issue_certificate, planned
from evarl.certificates.page import page
from evarl.cli.certify import print_issued
from evarl.cli.main import call
from evarl.errors import InputError
from evarl.evaluation.predictions import BehaviourPredictor
from evarl.learning.presets import preset
from evarl.simulation.simulator import simulator_for
from evarl.storage.files import write_bytes
from evarl.worlds.contexts import draw_contexts
from tests.evaluation.tiny import train_tiny

SITES, EPISODES = 9, 6
ALPHA = 0.2
CALIBRATION = evarl.Terms(claim="site-return", sites=SITES, rollouts=EPISODES, alpha=ALPHA)
SITE = evarl.Terms(site=("bridge=0.3",), alpha=ALPHA)


def trained(out: Path, **settings) -> Path:
    """A run over sites whose bridges differ."""
    base = preset("crossing")
    network = dataclasses.replace(base.evaluator.network, width=8, layers=1)
    few = {"policies": 4, "warmup": 1, "initial_steps": 5, "final_steps": 5}
    evaluator = dataclasses.replace(base.evaluator, network=network, **few, **settings)
    small = {"environments": 6, "contexts": 2, "steps": 20, "updates": 3, "beta": 1.0, "horizon": 20}
    config = dataclasses.replace(base, context=("bridge=0.15:0.9",), evaluator=evaluator, **small)
    return evarl.train(config, out=out, quiet=True).path


@pytest.fixture(scope="module")
def calibrated(tmp_path_factory) -> Path:
    """A run with a calibration."""
    run = trained(tmp_path_factory.mktemp("trained") / "run")
    issue_certificate(run, CALIBRATION)
    return run


@pytest.fixture(scope="module")
def tested(calibrated) -> Issued:
    """A certificate of a site."""
    return issue_certificate(calibrated, SITE)


@pytest.fixture
def run(calibrated, tested, tmp_path) -> Path:
    return Path(shutil.copytree(calibrated, tmp_path / "run"))


@pytest.fixture
def uncalibrated(calibrated, tmp_path) -> Path:
    return Path(shutil.copytree(calibrated, tmp_path / "new", ignore=shutil.ignore_patterns("certificates")))


def calibration_of(run: Path) -> Certificate:
    (entry, *_) = ledger.read(run)
    return load(ledger.path_of(run, entry.protocol))[0]


def refused(capsys, arguments: list[str]) -> str:
    """The line that says why a command is refused."""
    assert call(arguments) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    return said


def test_the_margin_is_that_of_the_library_and_the_bound_follows_from_the_test(calibrated, tested):
    certificate = calibration_of(calibrated)
    kept, protocol = certificate.evidence, certificate.protocol
    assert {name: len(column) for name, column in kept.items()} == {"predictions": SITES, "returns": SITES}
    assert protocol.contexts == ("bridge=0.15:0.9",)
    found = bounds.site_bound(bounds.SiteCalibration(kept["predictions"], kept["returns"], EPISODES), ALPHA)
    assert certificate.conclusion.bound == found.margin
    assert certificate.conclusion.rollouts == SITES * EPISODES
    assert "drawn like the 9 of this calibration (bridge=0.15:0.9)" in certificate.conclusion.statement

    site = tested.certificate
    assert site.protocol.calibrating == protocol
    assert {name: site.evidence[name] for name in kept} == kept, "the calibration is measured once"
    (prediction,) = site.evidence["prediction"]
    assert site.conclusion.bound == found.at(prediction)
    assert site.evidence["context"] == pytest.approx((0.3,))
    assert (site.conclusion.rollouts, site.confidence, site.earlier) == (0, 1 - ALPHA, ())
    assert "if this site was drawn like the 9 of the calibration" in site.conclusion.statement
    assert "not picked for its context" in site.conclusion.statement


@pytest.mark.slow
def test_returns_on_sites_have_the_exact_mean_and_groups_of_sites_are_padded(calibrated):
    policy = open_policy(calibrated, 0)
    contexts = np.array([[0.15], [0.9]], np.float32)
    returns = policy.returns_at(jnp.asarray(contexts), jax.random.PRNGKey(1), 1000)
    assert (np.abs(returns.mean(axis=1) - exact_values(policy, contexts)) < 5 * returns.std(axis=1) / 1000**0.5).all()
    few = dataclasses.replace(CALIBRATION, sites=7, rollouts=1000)  # four at a time
    kept = gather(planned(calibrated, few, None, ()), print)
    assert {name: len(column) for name, column in kept.items()} == {"predictions": 7, "returns": 7}
    assert len(set(kept["returns"])) == 7


@pytest.mark.slow
def test_one_test_for_all_sites_is_a_test_on_each(calibrated):
    """The predictions on many sites with one context are distributed like those on these sites alone."""
    policy = open_policy(calibrated, 0)
    queries = policy.world.observation(jnp.asarray(3))[None]
    many = jnp.asarray([[0.15]] * 400 + [[0.9]] * 400)
    predicted = policy.predicted_at(many, jax.random.PRNGKey(2), queries)
    alone = policy.predicted_at(many[:400], jax.random.PRNGKey(3), queries)
    assert predicted.shape == (800,)
    assert ks_2samp(predicted[:400], alone).pvalue > 1e-4


@pytest.mark.slow
def test_a_site_is_verified_by_repeating_and_by_fresh_rollouts(run, tested, capsys):
    path = run / "certificates" / tested.path.name
    assert call(["verify", str(path)]) == 0
    out = capsys.readouterr().out
    assert out.startswith("verified (the same rollouts were repeated, to the last bit, and fresh ones were made)")
    plan = tested.certificate.protocol.plan
    found = evarl.verify_certificate(path)
    assert found.verified
    assert found.conclusion.bound <= tested.certificate.conclusion.bound
    assert call(["verify", str(ledger.path_of(run, calibration_of(run).protocol)), "--files-only"]) == 0
    assert plan != calibration_of(run).protocol.plan


@pytest.mark.slow
def test_a_drawn_site_is_not_one_of_the_calibration_and_stays_the_same(run):
    first = planned(run, evarl.Terms(site=("drawn",), alpha=ALPHA), None, ())
    second = planned(run, evarl.Terms(site=("drawn:2",), alpha=ALPHA), None, ())
    assert first.protocol.site == ("drawn:1",)
    contexts = [float(site_context(one)[0]) for one in (first, second)]
    assert all(0.15 <= one <= 0.9 for one in contexts)
    assert contexts[0] != contexts[1]
    fresh = dataclasses.replace(first, key=np.array([7, 7], np.uint32), measured=None)
    assert float(site_context(fresh)[0]) == contexts[0]
    issued = issue_certificate(run, evarl.Terms(site=("drawn",), alpha=ALPHA))
    assert "; this site was drawn like the 9 of the calibration" in issued.certificate.conclusion.statement
    assert evarl.verify_certificate(issued.path).verified


@pytest.mark.slow
def test_the_expected_return_on_a_site(run, capsys):
    with pytest.raises(InputError, match=r"site-value of seed 0 has no finished calibration with alpha 0\.2"):
        issue_certificate(run, dataclasses.replace(SITE, claim="site-value"))
    arguments = ["calibrate", str(run), "--claim", "site-value", "--sites", "9", "--rollouts", "20", "--alpha", "0.2"]
    assert call([*arguments, "--json"]) == 0
    calibration, _ = load(Path(json.loads(capsys.readouterr().out)["certificate"]))
    kept, limits = calibration.evidence, bounds.Range(*calibration.protocol.range)
    found = bounds.site_bound(bounds.SiteCalibration(kept["predictions"], kept["bounds"], 20, value_error=0.2), ALPHA)
    assert calibration.conclusion.bound == found.margin
    site = issue_certificate(run, dataclasses.replace(SITE, claim="site-value", threshold=limits.low + 0.01))
    bound = max(limits.low, found.at(site.certificate.evidence["prediction"][0]))
    assert site.certificate.conclusion.bound == bound
    assert site.outcome == ("certified" if bound >= limits.low + 0.01 else "not certified")
    assert "the expected discounted return of this policy" in site.certificate.conclusion.statement
    assert evarl.verify_certificate(site.path).changed.keys() <= {"outcome"}


@pytest.mark.slow
def test_a_share_of_sites_has_two_levels(uncalibrated):
    terms = dataclasses.replace(CALIBRATION, sites=15, delta=0.1)
    found = issue_certificate(uncalibrated, terms).certificate
    assert "a share of at least 80 % is such that" in found.conclusion.statement
    assert found.confidence == pytest.approx(0.9)
    site = issue_certificate(uncalibrated, SITE).certificate
    assert site.confidence == pytest.approx(0.8), "of one site, over calibration and site together"


@pytest.mark.slow
def test_thresholds_of_a_site(run, tested):
    bound = tested.certificate.conclusion.bound
    reached = issue_certificate(run, dataclasses.replace(SITE, threshold=bound - 0.5))
    assert (reached.outcome, reached.origin) == ("certified", "answers another threshold")
    with pytest.raises(InputError, match=r"site-return has been tested on this site before, at level 0\.2"):
        issue_certificate(run, dataclasses.replace(SITE, threshold=bound + 5))
    other = issue_certificate(run, dataclasses.replace(SITE, site=("bridge=0.4",), threshold=bound + 50))
    assert other.outcome == "not certified"
    assert other.certificate.earlier == (), "another site is another matter"
    assert other.certificate.conclusion.statement.startswith("It is not shown that on the site bridge=0.4 the mean")


@pytest.mark.slow
def test_calibrating_until_the_margin_is_lucky_is_counted(run, tested, capsys):
    more = ["calibrate", str(run), "--sites", "10", "--rollouts", "6", "--alpha", "0.2"]
    assert "site-return has been tested for this policy before" in refused(capsys, more)
    assert call([*more, "--again", "--json"]) == 0
    second = json.loads(capsys.readouterr().out)
    assert second["confidence"] == pytest.approx(0.6)
    site = issue_certificate(run, dataclasses.replace(SITE, site=("bridge=0.5",))).certificate
    assert site.protocol.sites == 10, "the newest calibration"
    assert [one.digest for one in site.earlier] == [calibration_of(run).protocol_sha256]
    assert site.confidence == pytest.approx(0.6)
    found = evarl.verify_certificate(run / "certificates" / tested.path.name, rerun=False)
    assert found.verified
    assert any("later tests of site-return for this policy: 1" in note for note in found.notes)


def forge(run: Path, certificate: Certificate, registered: tuple = (), **changes) -> Path:
    """Write a changed certificate with a fitting conclusion, page, checksum and ledger; `registered` protocols come before."""
    forged = dataclasses.replace(certificate, **changes)
    evidence = {name: list(column) for name, column in forged.evidence.items()}
    if "conclusion" not in changes:
        forged = dataclasses.replace(forged, conclusion=conclude(forged.protocol, evidence))
    shutil.rmtree(run / "certificates")
    for protocol in registered:
        ledger.register(run, protocol, again=True)
    entry, _ = ledger.register(run, forged.protocol, again=True)
    path = ledger.path_of(run, forged.protocol)
    more = {"protocol_sha256": forged.protocol.hash(), "ledger": ledger.place(entry), "page_sha256": ""}
    forged = dataclasses.replace(forged, **more)
    text = page(forged, path.name).encode()
    forged = dataclasses.replace(forged, page_sha256=hashes.of_bytes(text))
    write_bytes(path.with_suffix(".html"), text)
    ledger.enter_certificate(run, forged.digest())
    save(path, forged)
    return path


def changes_of(path: Path) -> str:
    found = evarl.verify_certificate(path)
    assert not found.verified
    return "; ".join(f"{name}: {what}" for name, what in found.changed.items())


def test_a_forger_who_changes_nothing_is_verified(run, tested):
    own = tested.certificate.protocol
    assert evarl.verify_certificate(forge(run, tested.certificate, (own.calibrating,))).verified


def test_a_calibration_that_was_not_registered_is_refused(run, tested):
    assert "does not contain the calibration" in changes_of(forge(run, tested.certificate))


@pytest.mark.parametrize("column", ["predictions", "returns", "prediction", "context"])
def test_invented_evidence_is_refused(run, tested, column):
    kept = tested.certificate.evidence
    better = dict(kept, **{column: tuple(one + 0.01 for one in kept[column])})
    path = forge(run, tested.certificate, (tested.certificate.protocol.calibrating,), evidence=better)
    assert f"{column}: are different when repeated, by up to 0.01" in changes_of(path)


@pytest.mark.slow
def test_an_invented_margin_site_or_number_of_sites_is_refused(run, tested):
    certificate, protocol = tested.certificate, tested.certificate.protocol
    registered = (protocol.calibrating,)
    better = dataclasses.replace(certificate.conclusion, bound=0.5)
    assert "conclusion: does not follow" in changes_of(forge(run, certificate, registered, conclusion=better))
    for site, said in {
        "bridge=0.95": "site: bridge=0.95 is outside of what the calibration draws",
        "bridge=0.30": "protocol, site: is ['bridge=0.30'] in the certificate",
        "drawn:1": "prediction: are different when repeated",
        "drawn:x": "is not allowed; must be drawn, drawn:2, … or NAME=VALUE",
    }.items():
        elsewhere = dataclasses.replace(protocol, site=(site,))
        assert said in changes_of(forge(run, certificate, registered, protocol=elsewhere))
    fewer = dataclasses.replace(protocol, sites=8)
    short = {name: column[:8] for name, column in certificate.evidence.items()}
    assert "are different when repeated" in changes_of(
        forge(run, certificate, (fewer.calibrating,), protocol=fewer, evidence=short)
    )
    wide = dataclasses.replace(protocol, contexts=("bridge=0:1",))
    assert "protocol, contexts" in changes_of(forge(run, certificate, (wide.calibrating,), protocol=wide))


def test_an_edited_calibration_is_not_used(uncalibrated, capsys):
    issued = issue_certificate(uncalibrated, CALIBRATION)
    better = dataclasses.replace(issued.certificate.conclusion, bound=5.0)
    save(issued.path, dataclasses.replace(issued.certificate, conclusion=better))
    said = refused(capsys, ["certify", str(uncalibrated), "--site", "bridge=0.3", "--alpha", "0.2"])
    assert f"{issued.path}: is not used as calibration; conclusion: does not follow" in said


REFUSALS = {
    "outside": (
        ["certify", "RUN", "--site", "bridge=0.95", "--alpha", "0.2"],
        "site: bridge=0.95 is outside of what the calibration draws, bridge=0.15:0.9; nothing is known about such sites",
    ),
    "unknown context": (["certify", "RUN", "--site", "slip=0.2", "--alpha", "0.2"], "context: unknown"),
    "another level": (
        ["certify", "RUN", "--site", "bridge=0.3"],
        "site: site-return of seed 0 has no finished calibration with alpha 0.05 and these terms; first evarl calibrate",
    ),
    "other rollouts": (
        ["certify", "RUN", "--site", "drawn", "--alpha", "0.2", "--rollouts", "9"],
        "no finished calibration",
    ),
    "no number": (["certify", "RUN", "--site", "drawn:0", "--alpha", "0.2"], "site: 'drawn:0' is not allowed"),
    "another claim": (
        ["certify", "RUN", "--site", "bridge=0.3", "--claim", "single-episode"],
        "site: bridge=0.3 is not allowed for the claim single-episode; only for site-return and site-value",
    ),
    "no site": (["certify", "RUN", "--claim", "site-return"], "sites: are missing; site-return requires a calibration"),
    "no number of sites": (["calibrate", "RUN"], "sites: is missing"),
    "no sites": (["calibrate", "RUN", "--sites", "0"], "sites: 0 is not allowed"),
    "too few sites": (
        ["calibrate", "RUN", "--sites", "18"],
        "sites: there are 18 sites; must be at least 19 for alpha 0.05",
    ),
    "too few for the expected return": (
        ["calibrate", "RUN", "--sites", "23", "--claim", "site-value"],
        "sites: there are 23 sites; must be at least 24 for alpha 0.05, value_error 0.2",
    ),
    "too few for a share": (
        ["calibrate", "RUN", "--sites", "58", "--delta", "0.05"],
        "sites: there are 58 sites; must be at least 59 for alpha 0.05, delta 0.05",
    ),
    "a range without use": (
        ["calibrate", "RUN", "--sites", "30", "--range", "-60", "0"],
        "range: (-60.0, 0.0) is not allowed for the claim site-return",
    ),
}


@pytest.mark.parametrize("case", REFUSALS)
def test_what_is_refused_and_why(run, capsys, case):
    arguments, sentence = REFUSALS[case]
    before = ledger.read(run)
    assert sentence in refused(capsys, [str(run) if one == "RUN" else one for one in arguments])
    assert ledger.read(run) == before, "nothing is registered"


@pytest.mark.slow
def test_runs_without_contexts_and_without_calibration(uncalibrated, tmp_path, capsys):
    navigation = str(train_tiny(tmp_path / "navigation").path)
    for arguments in (["calibrate", navigation, "--sites", "30"], ["certify", navigation, "--site", "slip=0.1"]):
        assert "claim: site-return is about sites with hidden contexts, and" in refused(capsys, arguments)
    site = ["certify", str(uncalibrated), "--site", "bridge=0.3", "--alpha", "0.2"]
    assert "no finished calibration" in refused(capsys, site)


@pytest.mark.slow
def test_a_calibration_that_was_not_finished_goes_on(uncalibrated, capsys):
    site = ["certify", str(uncalibrated), "--site", "bridge=0.3", "--alpha", "0.2"]
    issued = issue_certificate(uncalibrated, CALIBRATION)
    issued.path.unlink()
    assert "no finished calibration" in refused(capsys, site)
    issue_certificate(uncalibrated, CALIBRATION)  # goes on
    assert call(site) == 0
    assert "at confidence 80 %" in capsys.readouterr().out


def test_a_test_repeats_its_calibration_from_the_protocol_alone(run, tested):
    policy = open_policy(run, 0)
    again = gather(PolicyTest(tested.certificate.protocol, policy), print)
    assert {name: tuple(column) for name, column in again.items()} == tested.certificate.evidence


# --- Lower quantiles


QUANTILE = dataclasses.replace(CALIBRATION, predictor="quantile")


@pytest.fixture(scope="module")
def with_quantile(tmp_path_factory) -> Path:
    """A run with a lower quantile, and a calibration of it."""
    run = trained(tmp_path_factory.mktemp("quantile") / "run", lower_quantile=0.1)
    issue_certificate(run, QUANTILE)
    return run


@pytest.fixture
def quantile_run(with_quantile, tmp_path) -> Path:
    return Path(shutil.copytree(with_quantile, tmp_path / "quantile"))


@pytest.mark.slow
def test_the_bound_is_relative_to_the_predicted_quantile(quantile_run, capsys):
    calibration = calibration_of(quantile_run)
    assert calibration.protocol.predictor == "quantile"
    statement = calibration.conclusion.statement
    assert re.search(
        r"is at least q̂\(Ξ\) [+−] [\d.]+, where q̂\(Ξ\) is the predicted lower quantile from the test", statement
    )
    test = planned(quantile_run, QUANTILE, None, ())
    policy, state = test.policy, test.policy.run.evaluator_state(0).state
    queries = simulator_for(policy.world).start_states(test.purpose(4), 256).queries
    evaluator, key = policy.run.learner.evaluability.evaluator, jax.random.fold_in(test.purpose(7), 0)
    contexts = draw_contexts(policy.world.contexts, test.purpose(6), SITES)
    shown = BehaviourPredictor(policy.run).assess_seed(0, key, contexts).behaviour
    for predict, same in ((evaluator.predict_lower, True), (evaluator.predict, False)):
        found = jax.vmap(predict, (None, 0, None))(state, shown, queries).mean(axis=1)
        assert np.allclose(found, calibration.evidence["predictions"], rtol=1e-4, atol=1e-4) == same
    arguments = ["certify", str(quantile_run), "--site", "bridge=0.3", "--alpha", "0.2"]
    assert call([*arguments, "--json"]) == 0
    site, _ = load(path := Path(json.loads(capsys.readouterr().out)["certificate"]))
    kept = calibration.evidence
    found = bounds.site_bound(bounds.SiteCalibration(kept["predictions"], kept["returns"], EPISODES), ALPHA)
    assert site.conclusion.bound == found.at(site.evidence["prediction"][0])
    assert site.conclusion.numbers["predicted lower quantile"] == site.evidence["prediction"][0]
    assert json.loads(path.read_text())["protocol"]["predictor"] == "quantile"
    shown_page = path.with_suffix(".html").read_text()
    assert "The margin is added to a lower quantile, predicted from the test" in shown_page
    assert "the mean return minus the evaluator&#39;s predicted lower quantile" in shown_page
    assert call(["verify", str(path)]) == 0
    out = capsys.readouterr().out
    assert out.startswith("verified (the same rollouts were repeated, to the last bit, and fresh ones were made)")


@pytest.mark.slow
def test_quantiles_bound_the_expected_return_too(quantile_run):
    terms = dataclasses.replace(QUANTILE, claim="site-value", rollouts=20)
    kept = issue_certificate(quantile_run, terms).certificate.evidence
    site = issue_certificate(quantile_run, dataclasses.replace(SITE, claim="site-value"))
    assert site.certificate.protocol.predictor == "quantile"
    found = bounds.site_bound(bounds.SiteCalibration(kept["predictions"], kept["bounds"], 20, value_error=0.2), ALPHA)
    low, _ = site.certificate.protocol.range
    assert site.certificate.conclusion.bound == max(low, found.at(site.certificate.evidence["prediction"][0]))
    assert evarl.verify_certificate(site.path, rerun=False).verified


@pytest.mark.slow
def test_the_other_predictor_is_another_attempt(quantile_run, capsys):
    """Whoever tries both predictors and takes the better has tried twice, in the calibration and on each site."""
    first = calibration_of(quantile_run)
    site = ["certify", str(quantile_run), "--site", "bridge=0.3", "--alpha", "0.2"]
    assert "first evarl calibrate" in refused(capsys, [*site, "--predictor", "value"])
    more = ["calibrate", str(quantile_run), "--sites", "9", "--rollouts", "6", "--alpha", "0.2"]
    assert "site-return has been tested for this policy before" in refused(capsys, more)
    assert call([*more, "--again", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["confidence"] == pytest.approx(0.6)
    newest = issue_certificate(quantile_run, dataclasses.replace(SITE, site=("bridge=0.5",))).certificate
    assert newest.protocol.predictor == "value", "the newest calibration"
    asked = issue_certificate(quantile_run, dataclasses.replace(SITE, predictor="quantile"))
    assert asked.certificate.protocol.calibrating == first.protocol
    assert "(with 1 earlier test" in printed(capsys, asked)
    for one in (newest, asked.certificate):
        assert one.confidence == pytest.approx(0.6), "each counts the calibration that it does not use"
    assert "on this site before" in refused(capsys, [*site, "--predictor", "value"])
    assert call([*site, "--predictor", "value", "--again", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["confidence"] == pytest.approx(0.4)
    found = evarl.verify_certificate(asked.path, rerun=False)
    assert found.verified
    assert any("later tests of site-return for this policy: 1" in note for note in found.notes)


def printed(capsys, issued: Issued) -> str:
    print_issued(issued)
    return capsys.readouterr().out


@pytest.mark.parametrize("predictor", ["value", None])
def test_a_forged_predictor_is_refused(quantile_run, predictor):
    issued = issue_certificate(quantile_run, SITE).certificate
    other = dataclasses.replace(issued.protocol, predictor=predictor)
    path = forge(quantile_run, issued, (other.calibrating,), protocol=other)
    said = changes_of(path)
    expected = "predictions: are different when repeated" if predictor else "protocol, predictor: is None in the certif"
    assert expected in said


def test_predictors_that_there_are_not(run, quantile_run, capsys):
    sentence = "predicts no lower quantile, train with --evaluator.lower-quantile 0.1"
    calibrate = ["calibrate", str(run), "--sites", "30", "--predictor", "quantile"]
    site = ["certify", str(run), "--site", "bridge=0.4", "--alpha", "0.2", "--predictor", "quantile"]
    for arguments in (calibrate, site):
        before = ledger.read(run)
        assert sentence in refused(capsys, arguments)
        assert ledger.read(run) == before
    said = refused(capsys, ["certify", str(quantile_run), "--predictor", "quantile"])
    assert "predictor: quantile is not allowed for the claim mean-return; only for site-return and site-value" in said
    forged = dataclasses.replace(calibration_of(run).protocol, predictor="quantile")
    evidence = calibration_of(run)
    assert "predicts no lower quantile" in changes_of(forge(run, evidence, protocol=forged))
