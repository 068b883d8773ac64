# A researcher: train an evaluable policy, look at it, go on for longer, and use it in a loop.
evarl train crossing --beta 1 --updates 250 --out runs/first --quiet
evarl assess runs/first --context bridge=0.15
evarl evaluate runs/first
evarl plot runs/first --metric return evaluation_error --out first.png
evarl video runs/first --out first.gif
evarl train crossing --beta 1 --updates 260 --out runs/first --resume --quiet
python - <<'PY'
import evarl, jax

run = evarl.load("runs/first")
assert "crossing" in repr(run) and run.metrics["update"].to_numpy().max() == 259
action = run.predict(run.world.reset(jax.random.PRNGKey(0))[1])
assert action.shape == () and 0 <= action < run.world.action_space.n
PY
