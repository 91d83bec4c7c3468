"""The benchmark: tasks, configuration, pipeline, results and the command line."""
