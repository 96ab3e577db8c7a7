"""Find the function that suits the data, with scikit-learn's GridSearchCV over formulas and activations."""

import json

from sklearn.datasets import load_wine
from sklearn.model_selection import GridSearchCV, train_test_split

import ftnn

x, y = load_wine(return_X_y=True)
x, x_test, y, y_test = train_test_split(x, y, test_size=0.3, random_state=0, stratify=y)
model = ftnn.FTNNClassifier(hidden_layer_sizes=(16,), random_state=0)
grid = {"function": ["F03", "F16", "p*sin(q*x + r)"], "activation": ["tanh", "relu"]}
search = GridSearchCV(model, grid, cv=3).fit(x, y)
print(f"best of {len(search.cv_results_['params'])}: {search.best_params_}")
print(json.dumps({"accuracy": search.score(x_test, y_test)}))
