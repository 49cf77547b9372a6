import yaml


class Config(dict):
    """A dict whose keys are attributes, too."""

    def __getattr__(self, name):
        try:
            value = self[name]
        except KeyError:
            raise AttributeError(name)
        return Config(value) if isinstance(value, dict) else value


def load_config(path, overrides=()):
    with open(path) as f:
        config = yaml.safe_load(f)
    for item in overrides:
        key, value = item.split('=', 1)
        node = config
        *parents, last = key.split('.')
        for parent in parents:
            node = node[parent]
        node[last] = yaml.safe_load(value)
    return Config(config)
