"""The ClientApp; the mod is all that is not an ordinary one's."""

from flwr.app import Array, ArrayRecord, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from xclp_crypto.flower.client import SecureMeanMod
from xclp_mean_app import model

app = ClientApp(mods=[SecureMeanMod()])


def given(message, context):
    """Return the model that came, and the data of this node."""
    arrays = {name: array.numpy() for name, array in message.content["arrays"].items()}
    config = context.node_config
    return arrays, *model.share(int(config["partition-id"]), int(config["num-partitions"]))


@app.train()
def train(message, context):
    arrays, (X, y), _ = given(message, context)
    trained, loss = model.train(arrays, X, y)
    content = {
        "arrays": ArrayRecord({name: Array(array) for name, array in trained.items()}),
        "metrics": MetricRecord({"num-examples": len(y), "loss": loss}),
    }
    return Message(RecordDict(content), reply_to=message)


@app.evaluate()
def evaluate(message, context):
    arrays, _, (X, y) = given(message, context)
    metrics = MetricRecord({"num-examples": len(y), "accuracy": model.accuracy(arrays, X, y)})
    return Message(RecordDict({"metrics": metrics}), reply_to=message)
