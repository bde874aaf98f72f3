"""The ServerApp; the grid that its strategy is given is all that is not an ordinary one's."""

from flwr.app import Array, ArrayRecord
from flwr.serverapp import ServerApp
from flwr.serverapp.strategy import FedAvg

from xclp_crypto.flower.server import SecureMeanGrid
from xclp_mean_app import model

app = ServerApp()


@app.main()
def main(grid, context):
    rounds, nodes = int(context.run_config["rounds"]), int(context.run_config["nodes"])
    arrays = ArrayRecord({name: Array(array) for name, array in model.zeros().items()})
    strategy = FedAvg(min_available_nodes=nodes, min_train_nodes=nodes, min_evaluate_nodes=nodes)
    strategy.start(SecureMeanGrid(grid), arrays, num_rounds=rounds)
