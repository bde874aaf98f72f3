"""The lab: data sets, experiments, federated training, the demonstration, and their reports."""
